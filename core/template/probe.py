"""What a chat template does to messages, found by rendering sentinel conversations and looking where they went.

No rule here knows a model's name: every field of the record follows from which markers are in a prompt, in which
order, and whether that stays so over the turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

from homing.core.template.record import Capabilities, Fate, Think, ToolIds
from homing.core.template.sentinels import (
    CALL_ID_LETTERS,
    NINE_LETTERS,
    TOOL,
    Marks,
    Message,
    assistant,
    calls,
    parts,
    result,
    says,
    system,
    thinking,
    user,
)

_WORST_LAST = (Fate.KEPT, Fate.MERGED, Fate.MOVES, Fate.FIRST_ONLY, Fate.LAST_ONLY, Fate.DROPPED, Fate.REFUSED)
_EMPTY_THINK = re.compile(r"<think>\s*</think>")
_LIST_AS_WRITTEN = re.compile(r"""['"]type['"]\s*:\s*['"]text""")
_OWN_WORDS = 8  # letters and digits; less is a role's name or a mark of punctuation


class RefusedError(Exception):
    """The template raised an error, or the engine answered 400; says its words."""


class OpaqueError(Exception):
    """Nothing can be found out: the template does not even show what users and assistants say."""


class Render(Protocol):
    def __call__(self, messages: Sequence[Message], tools: Sequence[object] | None = None) -> str:
        """The prompt, with what the answer begins with. Raises RefusedError; whatever else it raises ends the probe."""


def probe(render: Render, seed: bytes, dates: Sequence[str] = ()) -> Capabilities:
    """The record of the template behind `render`, in about thirty renderings.

    `seed`: unguessable; the markers are made of it. `dates`: today's date in the spellings to look for.
    Raises OpaqueError, and what `render` raises other than RefusedError.
    """
    return _Probe(render, Marks(seed)).record(dates)


class _Probe:
    def __init__(self, render: Render, mark: Marks) -> None:
        self._render = render
        self._mark = mark
        u1, a1, u2 = self._marks(3)
        try:
            turn, turns = render([user(u1)]), render([user(u1), assistant(a1), user(u2)])
        except RefusedError as refused:
            raise OpaqueError(f"the template refuses a plain conversation: {refused}") from None
        if u1 not in turn or not _in_order(turns, (u1, a1, u2)):
            raise OpaqueError("the template does not show a user's and an assistant's texts in their order")
        self._alone = turn, u1
        # what stands in front of a user's text, in the first turn and in a later one
        self._opening, self._later_opening = turn.partition(u1)[0], _between(turns, a1, u2)

    def record(self, dates: Sequence[str]) -> Capabilities:
        in_front = self._in_front("system")
        tool_calls, tool, tool_ids = self._tools()
        plain = self._stable_plain(in_front.whole)
        tools_whole = tool_calls.whole and tool.whole
        return Capabilities(
            system=in_front,
            systems=self._in_front("system", count=2),
            later_system=self._later(in_front not in (Fate.REFUSED, Fate.DROPPED)),
            developer=self._in_front("developer"),
            alternates=self._alternates(),
            user_first=self._shown(*map(says, ("assistant", "user"), self._marks(2))) is None,
            tool=tool,
            tool_calls=tool_calls,
            tool_calls_with_content=self._calls_with_content(tool_ids) if tools_whole else tool_calls,
            parallel_calls=self._parallel(tool_ids) if tools_whole else _worst(tool_calls, tool),
            tool_ids=tool_ids,
            content_lists=self._lists(in_front.whole, tool_ids if tools_whole else None),
            trims=self._trims(in_front.whole),
            default_system=in_front.whole and self._default_system(),
            think=self._think(),
            dated=any(date in self._alone[0] for date in dates),
            stable=plain[0],
            stable_history=plain[1],
            stable_tools=not tools_whole or self._stable_tools(tool_ids),
            stable_think=self._stable_think(tool_ids if tools_whole else None),
        )

    def _marks(self, count: int) -> list[str]:
        return [self._mark() for _ in range(count)]

    def _shown(self, *messages: Message, tools: bool = False) -> str | None:
        """The prompt, None for a refusal."""
        try:
            return self._render(messages, [TOOL] if tools else None)
        except RefusedError:
            return None

    def _in_front(self, role: str, count: int = 1) -> Fate:
        told = self._marks(count)
        u1, a1, u2 = self._marks(3)
        first = [says(role, text) for text in told] + [user(u1)]
        texts = self._shown(*first), self._shown(*first, assistant(a1), user(u2))
        fate = self._fate(texts, told, (*told, u1, a1, u2))
        return fate if fate is not Fate.KEPT or texts[0] is None else self._merged(texts[0].partition(told[0])[0])

    def _later(self, behind_another: bool) -> Fate:
        """In front of the second user turn; behind a system message at the front wherever one is taken."""
        front, late, u1, a1, u2, a2, u3 = self._marks(7)
        first = [system(front)] if behind_another else []
        turns = [*first, user(u1), assistant(a1), system(late), user(u2)]
        texts = self._shown(*turns), self._shown(*turns, assistant(a2), user(u3))
        told = [front, late] if behind_another else [late]
        fate = self._fate(texts, told, (*told[:-1], u1, a1, late, u2, a2, u3))
        return fate if fate is not Fate.KEPT or texts[0] is None else self._merged(_between(texts[0], a1, late))

    def _merged(self, opening: str) -> Fate:
        """Of a text in its place: whether it has the beginning of a user's turn in front of it."""
        return Fate.MERGED if opening in (self._opening, self._later_opening) else Fate.KEPT

    def _fate(self, texts: Sequence[str | None], told: Sequence[str], said: Sequence[str]) -> Fate:
        """Of the texts `told`; `said`: all that was said in its order; `texts`: the prompts of a turn and of a later
        one."""
        shown = [text for text in texts if text is not None]
        if len(shown) < len(texts):
            return Fate.REFUSED
        if (lost := _lost(shown, told)) is not None:
            return lost
        if all(_in_order(text, [mark for mark in said if mark in text]) for text in shown):
            return Fate.KEPT
        earlier, later = _order(shown[0], said), _order(shown[1], said)
        return Fate.MERGED if later[: len(earlier)] == earlier else Fate.MOVES

    def _alternates(self) -> bool:
        u1, u2, a1, a2, u3 = self._marks(5)
        twice_asked = self._shown(user(u1), user(u2))
        return twice_asked is None or self._shown(user(u1), assistant(a1), assistant(a2), user(u3)) is None

    def _tools(self) -> tuple[Fate, Fate, ToolIds]:
        """What becomes of calls and of results, and the ids they must have."""
        for ids in ToolIds:
            u1, word, found, a2, u2 = self._marks(5)
            call_id = self._call_id(ids)
            turns = user(u1), calls((call_id, word)), result(call_id, found), assistant(a2), user(u2)
            if (text := self._shown(*turns, tools=True)) is not None:
                return _kept_if(word in text), _kept_if(found in text), ids
        u1, word, a1, found, u2 = self._marks(5)
        call_id = self._call_id(ToolIds.ANY)
        asked = self._shown(user(u1), calls((call_id, word)), user(u2))
        told = self._shown(user(u1), assistant(a1), result(call_id, found), user(u2))
        return _shown_or_refused(asked, word), _shown_or_refused(told, found), ToolIds.ANY

    def _call_id(self, ids: ToolIds) -> str:
        return self._mark()[: NINE_LETTERS if ids is ToolIds.NINE else CALL_ID_LETTERS]

    def _calls_with_content(self, ids: ToolIds) -> Fate:
        u1, said, word, found, a2, u2 = self._marks(6)
        call_id = self._call_id(ids)
        turns = user(u1), calls((call_id, word), content=said), result(call_id, found), assistant(a2), user(u2)
        text = self._shown(*turns, tools=True)
        return Fate.REFUSED if text is None else _kept_if(said in text and word in text)

    def _parallel(self, ids: ToolIds) -> Fate:
        u1, word1, word2, found1, found2, a2, u2 = self._marks(7)
        id1, id2 = self._call_id(ids), self._call_id(ids)
        asked = calls((id1, word1), (id2, word2))
        text = self._shown(
            user(u1), asked, result(id1, found1), result(id2, found2), assistant(a2), user(u2), tools=True
        )
        if text is None:
            return Fate.REFUSED
        pairs = [word1 in text and found1 in text, word2 in text and found2 in text]
        return _of_several(pairs)

    def _lists(self, with_system: bool, ids: ToolIds | None) -> Fate:
        return _worst(*self._lists_by_role(with_system, ids))

    def _lists_by_role(self, with_system: bool, ids: ToolIds | None) -> Iterator[Fate]:
        u1, a1, u2, word = self._marks(4)
        two = self._marks(2)
        yield _parts_fate(self._shown(user(parts(two))), two)
        yield _parts_fate(self._shown(user(u1), assistant(parts(two)), user(u2)), two)
        if with_system:
            yield _parts_fate(self._shown(system(parts(two)), user(u1)), two)
        if ids is not None:
            call_id = self._call_id(ids)
            asked = user(u1), calls((call_id, word)), result(call_id, parts(two)), assistant(a1), user(u2)
            yield _parts_fate(self._shown(*asked, tools=True), two)

    def _trims(self, with_system: bool) -> bool:
        padded = [f"\n  {mark}  \n" for mark in self._marks(4)]
        text = self._shown(user(padded[0]), assistant(padded[1]), user(padded[2])) or ""
        kept = [said in text for said in padded[:3]]
        if with_system:
            kept.append(padded[3] in (self._shown(system(padded[3]), user(padded[0])) or ""))
        return not all(kept)

    def _default_system(self) -> bool:
        """Whether words stand in the place of a system text where there is none."""
        own, u1 = self._mark(), self._alone[1]
        without = self._alone[0].partition(u1)[0]
        given = (self._shown(system(own), user(u1)) or "").partition(u1)[0]
        front = _common_prefix(without, given)
        behind = _common_suffix(without[front:], given[front:])
        return sum(map(str.isalnum, without[front : len(without) - len(behind)])) >= _OWN_WORDS

    def _think(self) -> Think:
        u1, thought, a1, u2 = self._marks(4)
        text = self._shown(user(u1), assistant(thinking(thought, a1)), user(u2))
        if text is not None and thought in text:
            return Think.KEPT
        replaced = text is not None and _EMPTY_THINK.search(_between(text, u1, a1)) is not None
        return Think.REPLACED if replaced else Think.STRIPPED

    def _stable_plain(self, with_system: bool) -> tuple[bool, bool]:
        s, u1, a1, u2, a2, u3 = self._marks(6)
        front = [system(s)] if with_system else []
        turns = [[*front, user(u1)], [assistant(a1), user(u2)], [assistant(a2), user(u3)]]
        texts = self._grown(turns, tools=False)
        return _prefixes(texts), _up_to_the_last(texts, (s, u1, a1, u2, a2, u3))

    def _stable_tools(self, ids: ToolIds) -> bool:
        u1, word1, found1, a1, u2, word2, found2 = self._marks(7)
        id1, id2 = self._call_id(ids), self._call_id(ids)
        turns = [
            [user(u1)],
            [calls((id1, word1)), result(id1, found1)],
            [assistant(a1), user(u2)],
            [calls((id2, word2)), result(id2, found2)],
        ]
        said = u1, word1, found1, a1, u2, word2, found2
        return _up_to_the_last(self._grown(turns, tools=True), said)

    def _stable_think(self, ids: ToolIds | None) -> bool:
        u1, u2, u3, *said = self._marks(9)
        answers = [assistant(thinking(said[i], said[i + 1])) for i in (0, 2, 4)]
        plain = self._grown([[user(u1)], [answers[0], user(u2)], [answers[1], user(u3)]], tools=False)
        if not _up_to_the_last(plain, (u1, u2, u3, *said)):
            return False
        if ids is None:
            return True
        word, found, call_id = self._mark(), self._mark(), self._call_id(ids)
        asked = calls((call_id, word), content=thinking(said[0], said[1]))
        turns = [[user(u1)], [asked, result(call_id, found)], [answers[1], user(u2)]]
        return _up_to_the_last(self._grown(turns, tools=True), (u1, u2, word, found, *said))

    def _grown(self, turns: Sequence[Sequence[Message]], tools: bool) -> list[str | None]:
        """The prompts of a conversation that grows by each of `turns`."""
        said: list[Message] = []
        texts = []
        for turn in turns:
            said += turn
            texts.append(self._shown(*said, tools=tools))
        return texts


def _prefixes(texts: Sequence[str | None]) -> bool:
    """Whether each is the beginning of the next. A refusal shows nothing either way."""
    shown = [text for text in texts if text is not None]
    return all(later.startswith(text) for text, later in pairwise(shown))


def _up_to_the_last(texts: Sequence[str | None], marks: Sequence[str]) -> bool:
    """The same, as far as the last of the marks in each."""
    shown = [text for text in texts if text is not None]
    return all(later.startswith(text[: _end_of_the_last(text, marks)]) for text, later in pairwise(shown))


def _end_of_the_last(text: str, marks: Sequence[str]) -> int:
    return max((text.index(mark) + len(mark) for mark in marks if mark in text), default=0)


def _lost(texts: Sequence[str], told: Sequence[str]) -> Fate | None:
    """None when every text is in every prompt."""
    fate = _of_several([all(mark in text for text in texts) for mark in told])
    return None if fate is Fate.KEPT else fate


def _of_several(there: Sequence[bool]) -> Fate:
    if all(there):
        return Fate.KEPT
    if not any(there):
        return Fate.DROPPED
    return Fate.FIRST_ONLY if there[0] else Fate.LAST_ONLY


def _parts_fate(text: str | None, two: Sequence[str]) -> Fate:
    if text is None:
        return Fate.REFUSED
    if _LIST_AS_WRITTEN.search(text):  # the list itself, printed: no text for a model
        return Fate.DROPPED
    return _of_several([part in text for part in two])


def _shown_or_refused(text: str | None, mark: str) -> Fate:
    return Fate.REFUSED if text is None else _kept_if(mark in text)


def _kept_if(there: bool) -> Fate:
    return Fate.KEPT if there else Fate.DROPPED


def _worst(*fates: Fate) -> Fate:
    return max(fates, key=_WORST_LAST.index)


def _order(text: str, marks: Sequence[str]) -> list[str]:
    """The marks that are there, as they stand."""
    return sorted((mark for mark in marks if mark in text), key=text.index)


def _in_order(text: str, marks: Sequence[str]) -> bool:
    return _order(text, marks) == list(marks)


def _between(text: str, first: str, second: str) -> str:
    return text.partition(first)[2].partition(second)[0]


def _common_prefix(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _common_suffix(one: str, other: str) -> str:
    length = _common_prefix(one[::-1], other[::-1])
    return one[len(one) - length :]
