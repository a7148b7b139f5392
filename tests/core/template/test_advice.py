"""Records to plain words."""

from __future__ import annotations

import pytest

from homing.core.template.advice import warnings
from homing.core.template.record import Capabilities, Fate, Think, ToolIds

NO_TOOLS = "tool calls or their results are lost: not a model for tools"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Capabilities(), ()),
        (Capabilities(trims=True, stable=False, think=Think.STRIPPED), ()),
        (
            Capabilities(system=Fate.MOVES, stable=False, stable_history=False, stable_tools=False, stable_think=False),
            ("the system text moves every turn: the prefix cache will not hit",),
        ),
        (
            Capabilities(stable=False, stable_history=False),
            ("earlier turns change with every turn: the prefix cache will not hit",),
        ),
        (
            Capabilities(
                system=Fate.REFUSED, systems=Fate.REFUSED, later_system=Fate.REFUSED, alternates=True, user_first=True
            ),
            ("system messages are refused", "user and assistant turns must alternate"),
        ),
        (
            Capabilities(systems=Fate.LAST_ONLY, later_system=Fate.LAST_ONLY, developer=Fate.DROPPED),
            (
                "of several system messages only the last arrives",
                "a system message later in the conversation takes the place of the first, which vanishes",
                "developer messages vanish",
            ),
        ),
        (Capabilities(dated=True), ("today's date is in the prompt: every prefix is cold once a day",)),
        (Capabilities(tool=Fate.DROPPED), (NO_TOOLS,)),
        (Capabilities(tool_calls=Fate.REFUSED, parallel_calls=Fate.REFUSED), (NO_TOOLS.replace("lost", "refused"),)),
        (
            Capabilities(tool_calls_with_content=Fate.DROPPED, parallel_calls=Fate.FIRST_ONLY, tool_ids=ToolIds.NINE),
            (
                "of a message with text and tool calls one of the two is lost",
                "several tool calls in one message are lost in part",
                "ids of tool calls must have nine letters or digits",
            ),
        ),
        (
            Capabilities(think=Think.STRIPPED, stable_think=False),
            ("earlier answers' think blocks are cut when the next question comes: the cache misses from there on",),
        ),
        (
            Capabilities(stable_tools=False, user_first=True, default_system=True, content_lists=Fate.FIRST_ONLY),
            (
                "of a content given as a list of parts only the first may arrive",
                "a conversation that the assistant begins is refused",
                "without a system message the template puts in one of its own",
                "rounds of tool calls change when the next question comes: the cache misses them",
            ),
        ),
    ],
)  # fmt: skip
def test_warnings(record: Capabilities, expected: tuple[str, ...]):
    assert warnings(record) == expected


OF_ONE = ("system", "developer", "tool", "tool_calls", "tool_calls_with_content")
OF_SEVERAL = ("systems", "later_system", "parallel_calls", "content_lists")
LOST = [Fate.DROPPED, Fate.REFUSED]
LOSSES = [*((name, fate) for name in OF_ONE for fate in LOST),
          *((name, fate) for name in OF_SEVERAL for fate in [*LOST, Fate.FIRST_ONLY, Fate.LAST_ONLY])]  # fmt: skip


@pytest.mark.parametrize(("field", "fate"), LOSSES)
def test_no_loss_goes_without_a_word(field: str, fate: Fate):
    assert warnings(Capabilities(**{field: fate})) != ()
