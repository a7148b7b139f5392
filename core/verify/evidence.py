"""All that a measurement has seen, for the diagnoses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from homing.core.verify.comparison import NOTHING, Comparison
from homing.core.verify.conversation import Conversation, reusable
from homing.core.verify.observed import Answer, Engines, Failure, Observation, Probes, since
from homing.core.verify.plan import Run

MISSED = 0.2
"""Of all that is sent, so much less is found than can be: that needs a reason."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`url`: the gateway's. `header`: the one that carries the session's id. `first`: answers to the requests before
    the runs, in order. `states`: the engines' counters before and after each run. `concurrency`: conversations at once.
    """

    url: str
    key_given: bool = False
    header: str = "x-session-id"
    concurrency: int = 1
    first: Sequence[Answer] = ()
    probes: Probes = field(default_factory=Probes)
    observations: Sequence[Observation] = ()
    states: Mapping[Run, tuple[Engines, Engines]] = field(default_factory=dict)
    conversations: tuple[Conversation, ...] = ()
    issues: bool = False
    """Whether the gateway names a session that comes without an id."""
    comparison: Comparison = NOTHING
    """Of `observations` and of what the engines counted."""

    def answers(self) -> Iterator[Answer]:
        yield from self.first
        yield from (observation.answer for observation in self.observations)

    def failed(self, *failures: Failure) -> list[Answer]:
        return [answer for answer in self.answers() if answer.failure in failures]

    def counted(self) -> Mapping[Run, Engines]:
        """By each engine, during each run."""
        return {run: since(after, before) for run, (before, after) in self.states.items()}

    def engines(self) -> Engines:
        """As they were last."""
        return self.states[max(self.states, key=list(Run).index)][1] if self.states else {}

    def reusable(self) -> float:
        return reusable(self.conversations)

    def missed(self) -> float | None:
        """The share of all that is sent that the run with affinity could have found and did not; None where it is not
        known what it found."""
        rate = hit_rate(self, Run.AFFINITY)
        return max(0.0, self.reusable() - rate) if rate is not None else None

    def replicas(self) -> frozenset[str]:
        """Those that served anything, as far as it is known."""
        named = {answer.replica for answer in self.answers() if answer.replica}
        busy = {
            name for engines in self.counted().values() for name, c in engines.items() if c is not None and c.served
        }
        return frozenset(busy or named) | self.probes.homes | self.probes.spread


def hit_rate(evidence: Evidence, run: Run) -> float | None:
    hits = evidence.comparison.hits.get(run)
    return hits.rate if hits is not None else None
