"""From a template's record to the repairs that it needs, and a conversation through them.

The order counts: roles first, then what becomes a user's turn, then what is demanded of the order of turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from homing.core.chat.repairs import (
    alternation,
    calls,
    content,
    developer,
    fold,
    system_at_front,
    think,
    tool_ids,
    tools,
)
from homing.core.chat.repairs.names import Repair
from homing.core.chat.turn import Turns
from homing.core.template.record import Capabilities


@dataclass(frozen=True, slots=True)
class Switches:
    """What the file allows (`pools.<id>.repair`)."""

    system: bool = True
    developer: bool = True
    turns: bool = True
    tools: bool = True
    think: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """`needed` of a record; `apply` gives the same turns back where there is nothing to do."""

    repair: Repair
    switch: str
    needed: Callable[[Capabilities], bool]
    apply: Callable[[Turns, Capabilities], Turns]


STEPS = (
    Step(Repair.DEVELOPER, "developer", developer.needed, developer.apply),
    Step(Repair.TOOLS_AS_TEXT, "tools", tools.needed, tools.apply),
    Step(Repair.SPLIT_CALLS, "tools", calls.needed, calls.apply),
    Step(Repair.FOLD_SYSTEM, "system", fold.all_needed, fold.fold_all),
    Step(Repair.MERGE_SYSTEM, "system", system_at_front.needed, system_at_front.apply),
    Step(Repair.LATER_SYSTEM, "system", fold.later_needed, fold.fold_later),
    Step(Repair.FIRST_USER, "turns", alternation.first_needed, alternation.first_user),
    Step(Repair.MERGE_TURNS, "turns", alternation.merge_needed, alternation.merge),
    Step(Repair.EMPTY_ANSWER, "turns", alternation.answer_needed, alternation.answer_between),
    Step(Repair.TOOL_IDS, "tools", tool_ids.needed, tool_ids.apply),
    Step(Repair.CONTENT_TEXT, "turns", content.needed, content.apply),
    Step(Repair.STRIP_THINK, "think", think.needed, think.apply),
)


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs that one template may need. False where it needs none: then no body has to be read for it."""

    record: Capabilities
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, record: Capabilities, switches: Switches) -> Repairs:
        return cls(record, tuple(s for s in STEPS if getattr(switches, s.switch) and s.needed(record)))

    def __bool__(self) -> bool:
        return bool(self.steps)

    def apply(self, turns: Turns) -> tuple[Turns, tuple[Repair, ...]]:
        """The turns that the template takes, and what was done. The same object where nothing was."""
        done = []
        for step in self.steps:
            changed = step.apply(turns, self.record)
            if changed is not turns:
                turns = changed
                done.append(step.repair)
        return turns, tuple(done)
