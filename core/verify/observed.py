"""What was seen: the answer to each request, and the counters of each engine before and after a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from homing.core.verify.plan import Run


class Failure(StrEnum):
    """Why an answer is none."""

    UNREACHABLE = "unreachable"  # no connection
    BROKEN = "broken"  # a connection that ended before the answer did
    LATE = "late"  # nothing within the time that is allowed
    STATUS = "status"  # a status other than 200
    NO_CHOICES = "no_choices"  # 200, and not what OpenAI's API answers


TLS = "TLS: "
"""The details of a failure begin so where no connection came about for its sake."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one request. Times in seconds from when it was sent; tokens as its `usage` says, None where that says nothing.

    `detail`: of a failure, what may be shown (an error's words, names of members), never of a prompt or an answer.
    `session`, `replica`, `decision`: the headers of those names, as far as they came.
    """

    status: int = 0
    failure: Failure | None = None
    detail: str = ""
    ttft_s: float | None = None
    itl_s: float | None = None
    streamed: bool = True
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    answer_tokens: int | None = None
    session: str | None = field(default=None, repr=False)
    replica: str | None = None
    decision: str | None = None

    @property
    def good(self) -> bool:
        return self.failure is None and self.ttft_s is not None


@dataclass(frozen=True, slots=True)
class Observation:
    """One turn of one run. `turn` counts from 1; `sent`: the session's id on the request."""

    run: Run
    conversation: int
    turn: int
    sent: str | None = field(repr=False)
    answer: Answer

    @property
    def place(self) -> tuple[int, int]:
        return self.conversation, self.turn


@dataclass(frozen=True, slots=True)
class Counters:
    """An engine's own, since its start; None where it does not have them. `queried` and `found` in tokens; `served` in
    requests. `cache_tokens`: what its KV cache holds. `caching`: whether prefix caching is on. `ranks`: how many
    data-parallel engines stand behind the address; the figures are of all of them together."""

    queried: float | None = None
    found: float | None = None
    served: float = 0.0
    preemptions: float = 0.0
    cache_tokens: float | None = None
    block_size: int | None = None
    caching: bool | None = None
    ranks: int = 1

    def restarted(self, before: Counters) -> bool:
        """An engine that counts less has."""
        return self.served < before.served or (self.queried or 0) < (before.queried or 0)

    def since(self, before: Counters) -> Counters:
        """What was counted since then, or since it restarted."""
        if self.restarted(before):
            return self
        return Counters(
            _less(self.queried, before.queried),
            _less(self.found, before.found),
            self.served - before.served,
            self.preemptions - before.preemptions,
            self.cache_tokens,
            self.block_size,
            self.caching,
            self.ranks,
        )


Engines = Mapping[str, Counters | None]
"""By name; None for one that was asked and told nothing."""


def since(after: Engines, before: Engines) -> Engines:
    """What each has counted between; None where either is missing."""
    return {
        name: counters.since(was) if counters is not None and (was := before.get(name)) is not None else None
        for name, counters in after.items()
    }


def who_served(after: Engines, before: Engines) -> str | None:
    """The engine that served the one request sent between; None where none did, or also others were busy."""
    served = [(name, c.served) for name, c in since(after, before).items() if c is not None and c.served]
    return served[0][0] if len(served) == 1 and served[0][1] == 1 else None


@dataclass(frozen=True, slots=True)
class Probes:
    """Small requests one after the other, and who served each (None: not known).

    `same`: with one session's id; `fresh`: each with an id of its own. `by_header`: with one value under another
    header than the session's, where `same` went to several: whether that is what the gateway hashes.
    """

    same: tuple[str | None, ...] = ()
    fresh: tuple[str | None, ...] = ()
    by_header: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    @property
    def homes(self) -> frozenset[str]:
        """Where the one session's requests went."""
        return _known(self.same)

    @property
    def spread(self) -> frozenset[str]:
        """Where sessions of their own went."""
        return _known(self.fresh)

    def sticking(self) -> str | None:
        """The first header whose one value always led to one replica."""
        return next((name for name, told in self.by_header.items() if None not in told and len(set(told)) == 1), None)


def _known(told: tuple[str | None, ...]) -> frozenset[str]:
    return frozenset(name for name in told if name is not None)


def _less(after: float | None, before: float | None) -> float | None:
    return after - (before or 0.0) if after is not None else None
