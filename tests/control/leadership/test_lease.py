"""The lease in a real Redis: one holder at a time, and nothing is taken from who holds it no more."""

import asyncio

import pytest

from homing.control.leadership import lease as lease_module
from homing.control.leadership.lease import Held, Lease, Member, Publication
from homing.control.leadership.standing import Role

A, B = Member("a", Role.FOLLOWING, "f1", "v1"), Member("b", Role.LEADING, "f2", "v2")


async def expired(redis):
    """The store has let the lease go."""
    redis.command("DEL", "homing:test:control:lease")


async def test_one_has_it_until_it_gives_it_up_and_each_has_a_higher_number(leases):
    a, b = leases(), leases()
    assert await a.acquire("a") == 1
    assert await b.acquire("b") == 0
    assert (await b.look(B)).held == Held(1, "a")
    await b.release(Held(1, "b"))
    assert (await a.look(A)).held == Held(1, "a")
    await a.release(Held(1, "a"))
    assert await b.acquire("b") == 2


async def test_it_ends_by_itself_when_it_is_not_renewed(redis, monkeypatch, leases):
    monkeypatch.setattr(lease_module, "LEASE_S", 0.2)
    a, b = leases(), leases()
    await a.acquire("a")
    assert await a.keep(Held(1, "a"), None)
    ttl = int(redis.command("PTTL", "homing:test:control:lease").strip(":\r\n"))
    assert 0 < ttl <= 200
    async with asyncio.timeout(5):
        while (await b.look(B)).held is not None:  # noqa: ASYNC110 (it ends elsewhere)
            await asyncio.sleep(0.02)
    assert not await a.keep(Held(1, "a"), None)
    assert await b.acquire("b") == 2


async def test_what_one_writes_whose_time_is_over_is_not_taken(redis, leases):
    a, b = leases(), leases()
    await a.acquire("a")
    assert await a.keep(Held(1, "a"), Publication("old", b"of a"))
    assert ((await b.look(B)).published, await b.fleet()) == ("old", b"of a")
    await expired(redis)
    await b.acquire("b")
    assert (await a.look(A)).published == ""  # the new leader has said nothing yet
    assert not await a.keep(Held(1, "a"), Publication("late", b"of a again"))
    assert await b.keep(Held(2, "b"), Publication("new", b"of b"))
    assert ((await a.look(A)).published, await a.fleet()) == ("new", b"of b")


async def test_a_lease_that_changes_hands_while_it_is_renewed_is_not_kept(redis, leases, monkeypatch):
    a = leases()
    await a.acquire("a")
    begin = lease_module.begin

    def taken_over_now(pipeline):
        redis.command("SET", "homing:test:control:lease", "2 b")
        begin(pipeline)

    monkeypatch.setattr(lease_module, "begin", taken_over_now)
    assert not await a.keep(Held(1, "a"), Publication("late", b"of a"))
    assert (await a.look(A)).held == Held(2, "b")
    assert await a.fleet() is None


async def test_members_see_each_other_until_they_are_silent(redis, leases):
    a, b = leases(), leases()
    await a.look(A)
    seen = await b.look(B)
    assert [(m.name, m.role, m.file, m.serving) for m in seen.members] == [
        ("a", Role.FOLLOWING, "f1", "v1"),
        ("b", Role.LEADING, "f2", "v2"),
    ]
    redis.command("HSET", "homing:test:control:members", "later", '{"form": "unknown"}')
    old = '{"name":"old","role":"leading","file":"","serving":"","at_s":1.0}'
    redis.command("HSET", "homing:test:control:members", "old", old)
    assert [m.name for m in (await a.look(A)).members] == ["a", "b"]
    assert redis.command("HEXISTS", "homing:test:control:members", "old") == ":0\r\n"


async def test_installations_that_share_a_redis_do_not_see_each_other(redis, leases):
    a = leases()
    other = Lease(a._redis, "homing:other:control:")
    assert await a.acquire("a") == 1
    assert await other.acquire("x") == 1
    assert (await other.look(A)).held == Held(1, "x")


@pytest.mark.parametrize("command", [("SET", "homing:test:control:lease", "nonsense")])
async def test_a_lease_that_is_none_is_an_error_of_the_round(redis, leases, command):
    redis.command(*command)
    with pytest.raises(ValueError, match="invalid literal"):
        await leases().look(A)
