"""What it costs to send a request to a replica, in tokens of prefill. Least wins.

One term, one module: a function of the request and one replica. To add a term, write its module and name it in WORK
(what the replica has to do: a slow one takes longer for it) or in CHOICE (what speaks for or against it anyway).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from homing.core.placement.asked import Asked, There
from homing.core.placement.cost import crowding, decoding, eviction, leaving, owner, prefill, speed, spread, waiting

Term = Callable[[Asked, There], float]

WORK: Mapping[str, Term] = {
    "waiting": waiting.tokens,
    "prefill": prefill.tokens,
    "eviction": eviction.tokens,
    "spread": spread.tokens,
    "crowding": crowding.tokens,
    "decoding": decoding.tokens,
}
CHOICE: Mapping[str, Term] = {
    "leaving": leaving.tokens,
    "owner": owner.tokens,
}
TERMS = (*WORK, "speed", *CHOICE)

_work, _choice = tuple(WORK.values()), tuple(CHOICE.values())


def total(asked: Asked, there: There) -> float:
    """The whole cost."""
    work = choice = 0.0
    for term in _work:
        work += term(asked, there)
    for term in _choice:
        choice += term(asked, there)
    return work + speed.tokens(work, there) + choice


def itemised(asked: Asked, there: There) -> dict[str, float]:
    """The cost by its terms, for a receipt."""
    work = {name: term(asked, there) for name, term in WORK.items()}
    slow = {"speed": speed.tokens(sum(work.values()), there)}
    return work | slow | {name: term(asked, there) for name, term in CHOICE.items()}
