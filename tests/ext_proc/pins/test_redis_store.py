"""What gateways share through a real Redis, and what becomes of it when that Redis fails in every way it can."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis_server import RedisServer, free_port
from sharers import HISTORY, NEXT, PROMPT, TTL_S, Sharer, Stores

from homing.core.circuit import Circuit
from homing.core.placement.load import Vector
from homing.ext_proc.pins.counts import Peer, Read, Why
from homing.ext_proc.pins.first_sight import FirstSight
from homing.ext_proc.pins.redis_store import RedisStore

A, B = b"a" * 16, b"b" * 16


async def test_a_home_is_found_at_first_sight_by_who_never_heard_of_it(stores: Stores):
    one, writing = stores.add("one")
    one.put(A, "r1")
    assert await writing.round()
    other, reading = stores.add("other")
    assert await reading.fetch([A, B]) == {A}
    assert (other.home(A), other.home(B), other.word(A).stamp) == ("r1", None, one.word(A).stamp)
    assert (one.counts.told[Peer.REDIS], other.counts.heard[Peer.REDIS]) == (1, 1)


async def test_a_conversation_without_an_id_is_known_to_the_other(stores: Stores):
    (one, _), (other, _) = stores.add("one"), stores.add("other")
    one.serve(HISTORY, "r1")
    await stores.rounds(2)
    assert other.served(NEXT) == ("r1",)


async def test_the_other_knows_where_a_prompt_was_sent(stores: Stores):
    (one, _), (other, _) = stores.add("one"), stores.add("other")
    one.send(PROMPT, "r1")
    await stores.rounds(2)
    assert other.holders(PROMPT) == {"r1"}


async def test_a_session_that_both_know_moves_for_both(stores: Stores):
    (one, _), (other, _) = stores.add("one"), stores.add("other")
    one.put(A, "r1")
    await stores.rounds()
    assert other.home(A) == "r1"
    other.put(A, "r2")
    await stores.rounds(2)
    assert one.home(A) == "r2"


async def test_a_closed_session_is_gone_from_redis_and_for_the_other(stores: Stores):
    (one, _), (other, _) = stores.add("one"), stores.add("other")
    one.put(A, "r1")
    await stores.rounds()
    one.homes.forget(A, time.time())
    await stores.rounds()
    assert other.home(A) is None
    third, reading = stores.add("third")
    assert await reading.fetch([A]) == set()
    assert third.home(A) is None


async def test_the_load_of_each_is_known_to_the_other_and_not_counted_twice(stores: Stores):
    (one, _), (other, _) = stores.add("one"), stores.add("other")
    await stores.rounds()
    one.load.begin(("pool", "r1"))
    await stores.rounds(2)
    assert other.load.others(("pool", "r1")).in_flight == 1
    assert one.load.others(("pool", "r1")) == Vector()


async def test_homes_in_redis_end_with_the_idle_time_and_a_quarter(stores: Stores, redis: RedisServer):
    one, _ = stores.add("one")
    one.put(A, "r1")
    await stores.rounds()
    left_ms = int(redis.command("PTTL", "homing:test:home:" + A.decode()).strip(":\r\n"))
    assert TTL_S * 1000 < left_ms <= TTL_S * 1250


async def test_after_a_race_the_later_home_is_the_one_in_redis(stores: Stores):
    (one, first), (other, second) = stores.add("one"), stores.add("other")
    one.put(A, "r1")
    await asyncio.sleep(0.002)
    other.put(A, "r2")
    await second.round()
    await first.round()  # the older home, written last
    await stores.rounds(2)
    third, reading = stores.add("third")
    await reading.fetch([A])
    assert [sharer.home(A) for sharer in (one, other, third)] == ["r2", "r2", "r2"]


async def test_an_emptied_redis_is_written_again(stores: Stores, redis: RedisServer):
    one, writing = stores.add("one")
    for i in range(250):
        one.put(b"%16d" % i, "r1")
    assert await writing.round()
    redis.command("FLUSHALL")
    assert [await writing.round(), await writing.round()] == [True, True]
    assert one.counts.retold[Peer.REDIS] == 1
    assert int(redis.command("DBSIZE").strip(":\r\n")) == 250 + 2  # the stream and the epoch


async def test_a_redis_that_dies_and_comes_back_empty_is_written_again(stores: Stores, redis: RedisServer):
    one, writing = stores.add("one")
    one.put(A, "r1")
    assert await writing.round()
    redis.kill()
    one.put(B, "r2")
    assert not await writing.round()
    assert one.counts.failed == {(Peer.REDIS, Why.AWAY): 1}
    redis.start()
    assert [await writing.round() for _ in range(3)][-1]
    other, reading = stores.add("other")
    assert await reading.fetch([A, B]) == {A, B}
    assert (other.home(A), other.home(B)) == ("r1", "r2")


async def test_a_redis_that_is_not_there_at_the_start_costs_nothing_but_the_pins(tmp_path: Path):
    server = RedisServer(tmp_path / "late")
    sharer = Sharer("one")
    store = sharer.in_redis(server.url)
    sharer.put(A, "r1")
    try:
        assert not await store.round()
        server.start()
        assert await store.round()
        assert sharer.counts.told[Peer.REDIS] == 1
    finally:
        await store.close()
        server.kill()


async def test_a_frozen_redis_is_given_up_and_found_again(stores: Stores, redis: RedisServer):
    one, writing = stores.add("one")
    await stores.rounds()
    one.put(A, "r1")
    redis.freeze()
    began = time.monotonic()
    assert not await writing.round()
    with pytest.raises((TimeoutError, RedisTimeoutError)):
        await writing.fetch([A])
    assert time.monotonic() - began < 5
    assert one.counts.failed == {(Peer.REDIS, Why.LATE): 1}
    redis.thaw()
    assert await writing.round()
    assert one.counts.told[Peer.REDIS] == 1
    # no answer to a question that was given up is taken for that to a later one
    assert [await writing.fetch([digest]) for digest in (B, A, B)] == [set(), {A}, set()]


@pytest.fixture
async def slow(redis: RedisServer) -> AsyncIterator[str]:
    """A way to Redis on which every answer takes 30 ms."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await asyncio.sleep(delay_s)
                writer.write(data)
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", redis.port)
        await asyncio.gather(carry(reader, back, 0.0), carry(there, writer, 0.03))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_a_slow_redis_costs_the_first_sight_and_not_the_rounds(stores: Stores, slow: str):
    one, writing = stores.add("one", slow)
    one.put(A, "r1")
    assert await writing.round()
    outcomes: list[Read] = []
    seeing = FirstSight(writing.fetch, outcomes.append, Circuit(3, 60.0))
    task = asyncio.create_task(seeing.run())
    for i in range(5):
        if (wait := seeing.read(b"%16d" % i)) is not None:
            await asyncio.wait_for(wait, 5)
    task.cancel()
    assert outcomes == [Read.LATE] * 3 + [Read.SKIPPED] * 2


async def test_a_full_redis_is_counted_and_written_when_there_is_room(stores: Stores, redis: RedisServer):
    one, writing = stores.add("one")
    await stores.rounds()
    redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    one.put(A, "r1")
    assert not await writing.round()
    assert one.counts.failed == {(Peer.REDIS, Why.FULL): 1}
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert await writing.round()
    assert one.counts.told[Peer.REDIS] == 1


async def test_a_password_is_needed_and_known(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    server = RedisServer(tmp_path / "locked", ("--requirepass", "opensesame")).start()
    one, other = Sharer("one"), Sharer("other")
    knowing, guessing = one.in_redis(f"redis://:opensesame@127.0.0.1:{server.port}"), other.in_redis(server.url)
    wrong = other.in_redis(f"redis://:wrongword@127.0.0.1:{server.port}")
    try:
        assert [await store.round() for store in (knowing, guessing, wrong)] == [True, False, False]
        assert other.counts.failed == {(Peer.REDIS, Why.REFUSED): 2}
        assert "opensesame" not in caplog.text
        assert "wrongword" not in caplog.text
        assert str(server.port) not in caplog.text
    finally:
        for store in (knowing, guessing, wrong):
            await store.close()
        server.kill()


async def test_tls_and_only_to_who_is_signed_for(tmp_path: Path):
    trusted, stranger, tls_port = trustme.CA(), trustme.CA(), free_port()
    certificate = trusted.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for name, ca in (("trusted", trusted), ("stranger", stranger)):
        ca.cert_pem.write_to_path(tmp_path / f"{name}.pem")
    files = ("--tls-cert-file", f"{tmp_path}/cert.pem", "--tls-key-file", f"{tmp_path}/key.pem")
    ours = ("--tls-port", str(tls_port), *files, "--tls-ca-cert-file", f"{tmp_path}/trusted.pem")
    server = RedisServer(tmp_path / "tls", (*ours, "--tls-auth-clients", "no")).start()
    one = Sharer("one")
    url = f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={tmp_path}"
    knowing, doubting = one.in_redis(f"{url}/trusted.pem"), one.in_redis(f"{url}/stranger.pem")
    try:
        assert [await store.round() for store in (knowing, doubting)] == [True, False]
    finally:
        for store in (knowing, doubting):
            await store.close()
        server.kill()


async def test_keys_that_hold_something_else_are_nonsense_and_nothing_more(stores: Stores, redis: RedisServer):
    one, store = stores.add("one")
    redis.command("SET", "homing:test:home:" + A.decode(), "what is this")
    assert await store.fetch([A]) == set()
    redis.command("XADD", "homing:test:stream", "*", "s", "x", "m", "what is this")
    assert await store.round()
    assert one.counts.failed == {(Peer.REDIS, Why.NONSENSE): 2}
    redis.command("DEL", "homing:test:stream")
    redis.command("SET", "homing:test:stream", "no stream")
    assert not await store.round()
    assert one.counts.failed == {(Peer.REDIS, Why.NONSENSE): 3}


@pytest.fixture
async def babbler() -> AsyncIterator[str]:
    """Something that listens where Redis should be and says what no Redis says."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_what_is_no_redis_costs_nothing_but_the_pins(babbler: str):
    one = Sharer("one")
    one.put(A, "r1")
    store = one.in_redis(babbler)
    assert not await store.round()
    assert sum(one.counts.failed.values()) == 1
    assert one.home(A) == "r1"
    await store.close()


async def replicating(tmp_path: Path) -> tuple[RedisServer, RedisServer, RedisServer]:
    """A master, its replica, and a sentinel that watches them."""
    master = RedisServer(tmp_path / "master").start()
    replica = RedisServer(tmp_path / "replica", ("--replicaof", f"127.0.0.1 {master.port}")).start()
    watch = tmp_path / "sentinel" / "sentinel.conf"
    watch.parent.mkdir()
    watch.write_text(
        f"sentinel monitor pins 127.0.0.1 {master.port} 1\nsentinel down-after-milliseconds pins 500\n"
        "sentinel failover-timeout pins 2000\n"
    )
    return master, replica, RedisServer(watch.parent, (str(watch), "--sentinel"), free_port()).start()


async def test_sentinels_lead_to_the_new_master(tmp_path: Path):
    master, replica, sentinel = await replicating(tmp_path)
    one = Sharer("one")
    store = one.in_redis(f"redis+sentinel://127.0.0.1:{sentinel.port}/pins/0")
    try:
        one.put(A, "r1")
        assert await store.round()
        async with asyncio.timeout(30):
            while "online" not in master.command("INFO", "replication"):  # noqa: ASYNC110 (a process)
                await asyncio.sleep(0.05)
            while f"{replica.port}" not in sentinel.command("SENTINEL", "REPLICAS", "pins"):
                sentinel.command("SENTINEL", "RESET", "pins")
                await asyncio.sleep(0.3)
        master.kill()
        one.put(B, "r2")
        assert not await store.round()
        await until_written(store)
        other = Sharer("other")
        reading = other.in_redis(f"redis+sentinel://127.0.0.1:{sentinel.port}/pins/0")
        assert await reading.fetch([A, B]) == {A, B}
        await reading.close()
    finally:
        await store.close()
        for server in (master, replica, sentinel):
            server.kill()


async def until_written(store: RedisStore) -> None:
    async with asyncio.timeout(30):
        while not await store.round():  # noqa: ASYNC110 (a process)
            await asyncio.sleep(0.1)


def cluster_port() -> int:
    """The cluster's bus listens 10,000 above."""
    while True:
        port = free_port()
        if port < 55_000:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 10_000)):
                return port


async def test_a_cluster_of_several_servers(tmp_path: Path):
    settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "15000")
    servers = [RedisServer(tmp_path / f"node-{i}", settings, cluster_port()).start() for i in range(3)]
    try:
        bounds = (0, 5461, 10923, 16384)
        for server, first, end in zip(servers, bounds, bounds[1:], strict=False):
            server.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(end - 1))
            server.command("CLUSTER", "MEET", "127.0.0.1", str(servers[0].port))
        async with asyncio.timeout(30):
            while any("cluster_state:ok" not in s.command("CLUSTER", "INFO") for s in servers):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        stores = Stores(f"redis+cluster://127.0.0.1:{servers[0].port},127.0.0.1:{servers[1].port}")
        (one, _), (other, reading) = stores.add("one"), stores.add("other")
        digests = [b"%16d" % i for i in range(20)]
        for digest in digests:
            one.put(digest, "r1")
        async with asyncio.timeout(15):
            while [other.home(digest) for digest in digests] != ["r1"] * 20:
                await stores.rounds()
        third, reading = stores.add("third")
        assert await reading.fetch(digests) == set(digests)
        assert third.home(digests[0]) == "r1"
        for _, store in stores.made:
            await store.close()
    finally:
        for server in servers:
            server.kill()
