"""Who is to blame for what became of a request."""

from __future__ import annotations

import pytest
from picking import FLEET, Picking, outcome

from homing.core.outliers import Tally
from homing.core.placement.decision import Ref


def told(picking: Picking, replica_id: str, session: bytes) -> str:
    return f"{session.hex().ljust(32, '0')}:0:{replica_id}"


@pytest.fixture
def picking() -> Picking:
    return Picking(FLEET)


def test_a_ref_is_read_as_it_is_written():
    assert Ref.decode(told(Picking(FLEET), "gpu-0", b"s")).told == "gpu-0"


def test_who_answers_5xx_or_is_retried_elsewhere_has_failed_and_other_refusals_are_no_failure(picking: Picking):
    def ended(session: bytes, **fields: object) -> None:
        picking.picker.finished(outcome(ref=told(picking, "gpu-0", session), **fields))

    ended(b"1", replica_id="gpu-0", status=200)
    ended(b"2", replica_id="gpu-0", status=429)
    ended(b"3", replica_id="gpu-0", status=500)
    ended(b"4", replica_id="gpu-1", status=200, attempts=2)
    ended(b"5", replica_id="gpu-0", status=0)  # the client has gone
    ended(b"6", replica_id="", status=503, attempts=0)  # nobody was there
    picking.picker.finished(outcome(ref="", replica_id="gpu-2", status=500))  # not ours
    assert picking.picker.tallies(picking.now).replicas == (
        Tally("p", "gpu-0", 4, 2, 2, 2, 2),
        Tally("p", "gpu-1", 1, 0, 0),
    )
