import msgspec

from homing.control.census import Left, PickerCensus, tally
from homing.core.fleet import State
from homing.core.residents import Census, Residents

A = ("p", "a")


def census(sessions, streams, state=State.DRAINING, shared=False):
    return Census("v", shared, (Residents("p", "a", state, sessions, streams),))


def test_what_pickers_hold_is_added_up():
    assert tally([census(2, 1), census(3, 4)]) == {A: Left(5, 5, certain=True)}


def test_sessions_that_all_pickers_share_are_counted_once_and_streams_are_not():
    assert tally([census(5, 1, shared=True), census(4, 4, shared=True)]) == {A: Left(5, 5, certain=True)}


def test_a_picker_that_does_not_answer_leaves_doubt():
    assert tally([census(0, 0), None]) == {A: Left(0, 0, certain=False)}


def test_a_picker_that_has_not_heard_of_the_drain_leaves_doubt():
    assert tally([census(0, 0), census(0, 0, State.READY)]) == {A: Left(0, 0, certain=False)}


def test_a_picker_that_does_not_know_the_replica_leaves_doubt():
    assert tally([census(0, 0), Census("", False, ())]) == {A: Left(0, 0, certain=False)}


def test_only_certainty_is_nothing():
    assert Left(0, 0, certain=True).nothing
    assert not Left(0, 0, certain=False).nothing
    assert not Left(1, 0, certain=True).nothing
    assert not Left(0, 1, certain=True).nothing


async def test_pickers_are_asked_at_once_and_a_missing_one_costs_the_time_limit(http_replies):
    good = await http_replies(msgspec.json.encode(census(1, 2)))
    bad = await http_replies(b"<html>")
    async with PickerCensus({"good": good, "bad": bad, "none": "127.0.0.1:1"}, timeout_s=2) as ask:
        assert await ask() == {A: Left(1, 2, certain=False)}


async def test_without_pickers_nothing_is_known():
    async with PickerCensus({}) as ask:
        assert await ask() == {}
