"""Who may take a request. One filter, one module: a question about one replica, without regard to the others.

MUST holds for every request, WISHED for one that asks for something in particular. NEWCOMER holds too for one that does
not live there, and is waived where nobody is left. To add a filter, write its module and name it in one of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.core.placement.asked import Asked, There
from homing.core.placement.filters import adapter, capacity, drain, health, subset

Filter = Callable[[Asked, There], bool]

MUST: tuple[Filter, ...] = (health.allows,)
WISHED: tuple[Filter, ...] = (adapter.allows, subset.allows)
NEWCOMER: tuple[Filter, ...] = (drain.allows, capacity.allows)


def fit(asked: Asked, there: There) -> bool:
    """Whether it can serve the request at all."""
    for allows in MUST:  # plain loops: asked of everybody for every placement, and `all` takes half as long again
        if not allows(asked, there):
            return False
    if asked.wishes:
        for allows in WISHED:
            if not allows(asked, there):
                return False
    return True


def open_to(asked: Asked, there: There) -> bool:
    """Whether a session that does not live there may begin there. `fit` is asked for as well."""
    for allows in NEWCOMER:  # noqa: SIM110  (as in `fit`)
        if not allows(asked, there):
            return False
    return True


def newcomers(asked: Asked, candidates: Iterable[There]) -> list[There]:
    """Those that may take it; if all drain or are full, anybody who can serve it."""
    able = [there for there in candidates if fit(asked, there)]
    return [there for there in able if open_to(asked, there)] or able
