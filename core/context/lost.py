"""Whether a session has lost the system text that it had: gateways and frameworks that trim history often cut it off.

A turn is compared with what the session said before only if it goes on with that: its history has the last prompt of a
thread in it, whole (by the digests of `core.history`), or by that prompt's last message with an answer behind it, where
what came before was cut off. Then it has kept its system text, changed it (the client's right), or lost it. Whatever
does not go on with anything is a thread of its own: a side request for a title or a summary, a branch, a new beginning.
So is a turn that goes on but asks in another manner (other tools, streamed or not, another form of answer, another
shape of request): clients send the history once more to have it summed up.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import takewhile

from homing.core.chat.body import Members
from homing.core.chat.text import texts
from homing.core.chat.turn import Turn, Turns
from homing.core.history import History

THREADS = 8
"""Threads remembered of one session: the conversation, subagents, side requests. Those without a system text have
nothing to lose, and are not remembered."""

MAX_TEXT_BYTES = 64 << 20
"""Of all texts that are kept to be restored."""

MANNERS = ("stream", "tools", "response_format", "text", "tool_choice")


# Claude Code's, of the whole request: another one with every turn.
_CHECKSUM = re.compile(rb"\bcch=[0-9a-f]+")


class Finding(StrEnum):
    """What became of a session's system text: the values of homing_system_texts_total's label `outcome`."""

    NEW = "new"  # a thread that nobody has seen before
    KEPT = "kept"
    CHANGED = "changed"  # the client says something else now, or more, or less
    LOST = "lost"  # the thread goes on without any
    RESTORED = "restored"  # the same, and put back
    SIDE = "side"  # goes on in another manner: not compared


@dataclass(frozen=True, slots=True)
class Thread:
    """The last prompt of a conversation. `texts`: its leading system turns, where they are to be restored."""

    unsaid: bytes
    tail: bytes | None
    manner: bytes
    system: bytes
    texts: tuple[Turn, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of its texts."""
        return sum(len(value) for turn in self.texts for value in turn.members.values())


@dataclass(frozen=True, slots=True)
class Spoken:
    """One turn as it came: what of it is compared."""

    history: History
    manner: bytes
    system: bytes
    """Digest of the leading system texts, empty where there are none."""
    leading: tuple[Turn, ...]

    @classmethod
    def of(cls, body: Members, turns: Turns, history: History) -> Spoken:
        leading = tuple(takewhile(lambda turn: turn.is_system, turns))
        said = [_CHECKSUM.sub(b"", text) for turn in leading for text in texts(turn.content) or ()]
        manner = [turns[0].kind.encode() if turns else b"", *(bytes(body.get(m, b"")) for m in MANNERS)]
        return cls(history, _digest(manner), _digest(said) if said else b"", leading)


@dataclass(frozen=True, slots=True)
class Judgement:
    finding: Finding
    threads: tuple[Thread, ...]
    """The session's threads from now on, the last used first."""
    lost: tuple[Turn, ...] = ()
    """The turns that the session had and this turn has not, if they are remembered."""


def judge(threads: tuple[Thread, ...], spoken: Spoken, remember: bool) -> Judgement:
    """`remember`: keep the texts themselves, to be restored."""
    known = next((thread for thread in threads if _goes_on(thread, spoken.history)), None)
    if known is None:
        new = (_thread(spoken, remember),) if spoken.system else ()
        return Judgement(Finding.NEW, (*new, *threads)[:THREADS])
    if known.manner != spoken.manner:
        return Judgement(Finding.SIDE, threads)
    others = tuple(thread for thread in threads if thread is not known)
    if known.system and not spoken.system:
        # what it had stays known, so that the next turn without it is told as well
        history = spoken.history
        kept = Thread(history.unsaid, history.tail, known.manner, known.system, known.texts)
        return Judgement(Finding.LOST, (kept, *others), known.texts)
    finding = Finding.KEPT if known.system == spoken.system else Finding.CHANGED
    return Judgement(finding, (_thread(spoken, remember), *others))


def _thread(spoken: Spoken, remember: bool) -> Thread:
    texts = tuple(turn.detached() for turn in spoken.leading) if remember else ()
    return Thread(spoken.history.unsaid, spoken.history.tail, spoken.manner, spoken.system, texts)


def _goes_on(thread: Thread, history: History) -> bool:
    if thread.unsaid == history.unsaid or thread.unsaid in history.unsaid_earlier:
        return True
    return thread.tail is not None and thread.tail in history.earlier_tails


def _digest(parts: list[bytes]) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4) + part)
    return digest.digest()


Changes = dict[bytes, tuple[Thread, ...]]
MAX_CHANGES = 10_000


class Sessions:
    """Threads by session, bounded in number, bytes of text and idle time: the longest unused leave first. Times are
    seconds of any monotonic clock."""

    __slots__ = ("_changes", "_entries", "_max", "_max_bytes", "size_bytes", "ttl_s")

    def __init__(self, ttl_s: float, max_sessions: int, max_bytes: int = MAX_TEXT_BYTES) -> None:
        self.limit(ttl_s, max_sessions)
        self._max_bytes = max_bytes
        self._changes: Changes | None = None
        self._entries: OrderedDict[bytes, tuple[tuple[Thread, ...], float]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def limit(self, ttl_s: float, max_sessions: int) -> None:
        self.ttl_s, self._max = ttl_s, max_sessions

    def changes(self) -> Changes:
        """What becomes of sessions from now on, to be told elsewhere: the threads, none of a session that has ended.
        Whoever takes them takes them out. At most MAX_CHANGES wait; the oldest go first."""
        if self._changes is None:
            self._changes = {}
        return self._changes

    def get(self, digest: bytes, now: float) -> tuple[Thread, ...]:
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and now - entry[1] < self.ttl_s else ()

    def put(self, digest: bytes, threads: tuple[Thread, ...], now: float) -> None:
        self.absorb(digest, threads, now)
        self._changed(digest, threads)

    def absorb(self, digest: bytes, threads: tuple[Thread, ...], now: float) -> None:
        """As `put`, of what was told elsewhere."""
        self._drop(digest)
        self._entries[digest] = (threads, now)
        self.size_bytes += _size(threads)
        self._expire(now)

    def forget(self, digest: bytes) -> None:
        """The session has ended."""
        self._drop(digest)
        self._changed(digest, ())

    def _changed(self, digest: bytes, threads: tuple[Thread, ...]) -> None:
        changes = self._changes
        if changes is None:
            return
        changes[digest] = threads
        if len(changes) > MAX_CHANGES:
            del changes[next(iter(changes))]

    def _drop(self, digest: bytes) -> None:
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self.size_bytes -= _size(entry[0])

    def _expire(self, now: float) -> None:
        for _ in range(2):  # a few at a time, so that no single request pays for many
            first = next(iter(self._entries), None)
            if first is None or (len(self._entries) <= self._max and now - self._entries[first][1] < self.ttl_s):
                break
            self._drop(first)
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))


def _size(threads: tuple[Thread, ...]) -> int:
    return sum(thread.size_bytes for thread in threads)
