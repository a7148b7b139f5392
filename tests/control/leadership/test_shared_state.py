"""What control services know together, in a real Redis."""

import asyncio

import pytest

from homing.control.audit import Entry
from homing.control.discovery.source import Found
from homing.control.drains import Drain
from homing.control.leadership.shared_state import MAX_AUDIT
from homing.control.policies import MAX_KEPT
from homing.control.registrations import Registration
from homing.control.state import LastFound, Proved, Saved, StateError
from homing.core.policy import Policy, PoolPolicy

PLACE = ("p", "a:b/c")
DRAIN = Drain(*PLACE, since_s=1.5, deadline_s=61.25)
ENDED = Drain(*PLACE, 1.5, 61.25, 30.0, "idle", 0)
X = Registration("p", "x", "10.0.0.9:80", 1, ttl_s=10.0)
FOUND = LastFound(("p", "dns"), (Found("r", "10.0.0.1:80", 1),))
ENTRY = Entry(1.0, "127.0.0.1", "drain", "p/a", "deadline_s=60")


def serial(redis):
    return redis.command("GET", "homing:test:control:serial")


async def loaded(state):
    found = []
    await state.load(found.append)
    return found[0]


@pytest.fixture
async def filled(states):
    state = states()
    await state.fill(Saved())
    return state


async def test_what_one_writes_the_other_reads(redis, filled, states):
    other, before = states(), serial(redis)
    await filled.put_drain(DRAIN)
    await filled.put_registration(X)
    await filled.put_found(FOUND.key, FOUND.found)
    await filled.put_proved(("p", "r"), 17)
    await filled.put_audit(ENTRY)
    assert serial(redis) != before
    assert await loaded(other) == Saved((DRAIN,), (X,), (FOUND,), (Proved(("p", "r"), 17),), (ENTRY,))
    await other.remove_drain(PLACE)
    await other.remove_registration(X.place)
    assert (await loaded(filled)).drains == (await loaded(filled)).registrations == ()


async def test_a_drain_is_ended_only_as_it_was(filled, states):
    other = states()
    await filled.put_drain(DRAIN)
    longer = Drain(*PLACE, since_s=1.5, deadline_s=900.0)
    await other.put_drain(longer)
    assert not await filled.end_drain(DRAIN, ENDED)
    assert (await loaded(other)).drains == (longer,)
    assert await filled.end_drain(longer, ENDED)
    assert (await loaded(other)).drains == (ENDED,)
    await other.remove_drain(PLACE)
    assert not await filled.end_drain(ENDED, ENDED)
    assert (await loaded(other)).drains == ()


async def test_who_was_heard_of_anywhere_is_known_for_its_time(filled, states, redis):
    other = states()
    assert await other.heard([]) == frozenset()
    await filled.note_heard(("p", "x"), 0.05)
    await filled.note_heard(PLACE, 60)
    async with asyncio.timeout(5):
        while await other.heard([("p", "x"), PLACE, ("p", "never")]) != {PLACE}:  # noqa: ASYNC110 (it ends elsewhere)
            await asyncio.sleep(0.02)


async def test_what_is_written_into_an_emptied_store_is_not_taken_for_all_there_is(redis, filled, states):
    redis.command("FLUSHALL")
    other = states()
    await other.put_registration(X)
    assert serial(redis) == "$-1\r\n"  # nobody reads it before the leader has filled it
    await filled.fill(Saved(drains=(DRAIN,), audit=(ENTRY,)))
    assert serial(redis) != "$-1\r\n"
    assert await loaded(other) == Saved(drains=(DRAIN,), registrations=(X,), audit=(ENTRY,))


async def test_records_that_are_none_are_left_out_and_kept(redis, filled):
    await filled.put_drain(DRAIN)
    redis.command("HSET", "homing:test:control:drains", "p/later", '{"form": "of a later release"}')
    redis.command("HSET", "homing:test:control:drains", "p/torn", "{")
    assert (await loaded(filled)).drains == (DRAIN,)
    assert redis.command("HEXISTS", "homing:test:control:drains", "p/later") == ":1\r\n"


async def test_the_audit_log_is_bounded_and_in_order(filled, redis):
    await filled.fill(Saved(audit=tuple(Entry(float(i), "w", "x", "t") for i in range(MAX_AUDIT))))
    await filled.put_audit(ENTRY)
    entries = (await loaded(filled)).audit
    assert (len(entries), entries[0].at_s, entries[-1]) == (MAX_AUDIT, 1.0, ENTRY)


async def test_registrations_are_in_one_order_for_everybody(filled, states):
    for name in ("z", "a", "m"):
        await filled.put_registration(Registration("p", name, "10.0.0.9:80", 1, None))
    assert [r.replica for r in (await loaded(states())).registrations] == ["a", "m", "z"]


async def test_a_store_that_is_away_refuses_writes(redis, filled):
    redis.kill()
    with pytest.raises(StateError, match="cannot be had"):
        await filled.put_drain(DRAIN)
    with pytest.raises(StateError):
        await filled.end_drain(DRAIN, ENDED)


async def test_of_two_policies_of_one_version_the_first_holds(filled, states):
    first, second = Policy(1, 5.0, "a", bypass=True), Policy(1, 6.0, "b", pools={"p": PoolPolicy("off", {"r": 0.5})})
    assert await filled.put_policy(first)
    assert not await states().put_policy(second)
    assert (await loaded(states())).policies == (first,)
    for version in range(2, MAX_KEPT + 3):
        assert await filled.put_policy(Policy(version))
    assert sorted(p.version for p in (await loaded(filled)).policies) == list(range(3, MAX_KEPT + 3))
