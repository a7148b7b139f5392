"""What a picker learns from what became of its requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from picking import OTHER, POOL, REPLICAS, Picking, destination, home, other_than, outcome

from homing.core.fleet import Fleet


@pytest.mark.parametrize(("status", "label"), [(200, "2xx"), (404, "4xx"), (503, "5xx"), (0, "0xx")])
def test_an_outcome_is_counted_by_who_served_and_how(picking: Picking, status: int, label: str):
    picking.picker.finished(outcome(status=status))
    assert picking.picker.counts.outcomes == {("p", "gpu-0", label): 1}


def test_outcomes_of_what_envoy_answered_itself_are_not_counted(picking: Picking):
    picking.picker.finished(outcome(pool_id=""))
    picking.picker.finished(outcome(pool_id="gone"))
    assert picking.picker.counts.outcomes == {}
    assert picking.ttfts == []


def test_the_time_to_first_token_is_observed_where_there_is_one(picking: Picking):
    picking.picker.finished(outcome(ttft_s=0.25))
    picking.picker.finished(outcome(ttft_s=None))
    picking.picker.finished(outcome(replica_id="", ttft_s=0.5))
    assert picking.ttfts == [(("p", "gpu-0"), 0.25)]


@pytest.mark.parametrize(("streamed", "told"), [(True, 1), (False, 0)])
def test_only_the_first_token_of_a_stream_teaches_how_fast_a_replica_is(picking: Picking, streamed: bool, told: int):
    """The first byte of another answer comes when all of it is there."""
    for _ in range(2):
        ref = dict(picking.route(content_length=b"40000").set_headers)["x-homing-ref"].decode()
        picking.picker.finished(outcome(replica_id=home().id, ref=ref, ttft_s=9.0, streamed=streamed))
    _, seconds = picking.picker.placer.load.meter(("p", home().id)).speed.own
    assert (seconds > 0) == told


@pytest.mark.parametrize(("attempts", "retried"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_requests_that_were_retried(picking: Picking, attempts: int, retried: int):
    picking.picker.finished(outcome(attempts=attempts))
    assert picking.picker.counts.retried["p"] == retried


def test_what_envoy_placed_alone_is_counted_and_moves_nobody(picking: Picking):
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    picking.picker.finished(outcome(decision="fallback", ref=ref, replica_id=other_than(home())))
    assert picking.picker.counts.fallbacks == {"p": 1}
    assert picking.picker.counts.rehomed == {}
    assert destination(picking) == home().address


def test_a_session_lives_where_a_retry_was_served(picking: Picking):
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    elsewhere = other_than(home())
    picking.picker.finished(outcome(replica_id=elsewhere, attempts=2, ref=ref))
    assert picking.picker.counts.rehomed == {"p": 1}
    assert destination(picking) == next(r.address for r in REPLICAS if r.id == elsewhere)


@pytest.mark.parametrize("ref", ["", "not hexadecimal", "00", "é" * 32, "ff" * 16])
def test_a_ref_that_is_not_ours_moves_nobody(picking: Picking, ref: str):
    picking.route()
    picking.picker.finished(outcome(replica_id=other_than(home()), ref=ref))
    assert picking.picker.counts.rehomed == {}
    assert destination(picking) == home().address


def test_the_late_outcome_of_a_long_answer_does_not_bring_a_session_back(picking: Picking):
    """It was told of one home, and moved while that answer was still on its way."""
    first = dict(picking.route().set_headers)["x-homing-ref"].decode()
    elsewhere = other_than(home())
    picking.picker.finished(outcome(replica_id=elsewhere, ref=first))
    third = next(r.id for r in REPLICAS if r.id not in (home().id, elsewhere))
    picking.picker.finished(outcome(replica_id=third, ref=first))
    assert destination(picking) == next(r.address for r in REPLICAS if r.id == elsewhere)


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_failure_moves_nobody(picking: Picking, status: int):
    """Where every replica failed, the last one that was tried is no home."""
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    picking.picker.finished(outcome(replica_id=other_than(home()), status=status, attempts=3, ref=ref))
    assert destination(picking) == home().address


def test_a_replica_that_is_gone_leaves_the_metrics(picking: Picking):
    for replica in REPLICAS:
        picking.picker.finished(outcome(replica_id=replica.id))
    picking.picker.adopt(Fleet((replace(POOL, replicas=REPLICAS[1:]), OTHER)))
    assert picking.forgotten == [("p", "gpu-0")]
    assert picking.picker.counts.outcomes == {("p", "gpu-1", "2xx"): 1, ("p", "gpu-2", "2xx"): 1}
