"""Who may take what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from homing.core.fleet import Replica, State
from homing.core.placement.filters import serves_its_own, takes_new

READY = Replica("a", "10.0.0.1:8000")


@pytest.mark.parametrize(
    ("state", "healthy", "its_own", "new"),
    [
        (State.READY, True, True, True),
        (State.DRAINING, True, True, False),
        (State.JOINING, True, False, False),
        (State.READY, False, False, False),
        (State.DRAINING, False, False, False),
        (State.JOINING, False, False, False),
    ],
)
def test_filters(state: State, healthy: bool, its_own: bool, new: bool):
    replica = replace(READY, state=state, healthy=healthy)
    assert (serves_its_own(replica), takes_new(replica)) == (its_own, new)
