"""Subscriptions to a real publisher over ZeroMQ: the sim's, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import zmq

from homing.core.config import parse
from homing.core.fleet import Fleet, Pool, Replica
from homing.core.prefix.blocks import chain
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.ext_proc import kv_events
from homing.ext_proc.kv_source import Fate, Source
from homing.ext_proc.prefixes import Prefixes
from homing.sim.kv_events import EventFormat, EventLog, KvEventsConfig
from homing.sim.kv_publisher import KvPublisher
from homing.sim.prefix_cache import Removed, Stored
from homing.sim.tokenizer import token_ids

PROMPTS = [list(range(100 * i, 100 * i + 8)) for i in range(6)]  # two blocks of 4 each
REPLICA = Replica("a", "10.0.0.1:8000")


def keys(number: int) -> tuple[bytes, bytes]:
    return bytes([9, number] * 8), bytes([7, number] * 8)


def stored(number: int) -> Stored:
    return Stored(keys(number), b"", token_ids(PROMPTS[number]))


class Listening:
    """A picker's index, fed by one replica that publishes below `directory`."""

    def __init__(self, directory: Path, *, replay: bool = True) -> None:
        self.events, self.replay = f"ipc://{directory}/a.events", f"ipc://{directory}/a.replay"
        self.prefixes = Prefixes(Index())
        urls = f"kv_events: 'ipc://{directory}/{{id}}.events'"
        urls += f", replay: 'ipc://{directory}/{{id}}.replay'" if replay else ""
        text = f"pools: {{p: {{engine: {{{urls}}}, replicas: [{{id: a, address: 'h:1'}}]}}}}"
        self.prefixes.configure(parse(text, "f"))
        self.prefixes.adopt(Fleet((Pool("p", "m", replicas=(REPLICA,)),)))

    @property
    def blocks(self):
        return self.prefixes.index.pool("p").blocks

    def holds(self, number: int) -> bool:
        names = list(chain(PROMPTS[number], 4))
        return self.blocks.held(names, 2) == {"a": 2}

    def fates(self) -> dict[Fate, int]:
        return {fate: n for (_, fate), n in self.prefixes.kv_counts.batches.items()}

    @contextmanager
    def publisher(self, form: EventFormat = EventFormat.MAP, keep: int = 100) -> Iterator[KvPublisher]:
        config = KvEventsConfig(endpoint=self.events, replay_endpoint=self.replay)
        publisher = KvPublisher(config, EventLog(4, form, keep))
        try:
            yield publisher
        finally:
            publisher.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.prefixes.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def say_until(say: Callable[[], object], condition: Callable[[], bool]) -> None:
    """A subscription takes a moment, and what is published before is not heard: says it until it is."""
    async with asyncio.timeout(10):
        while not condition():
            say()
            await asyncio.sleep(0.02)


@contextmanager
def speaking(listening: Listening) -> Iterator[Callable[[bytes, bytes], None]]:
    """An engine that says what it is told to, and answers no replay."""
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.linger = 0
        socket.bind(listening.events)
        yield lambda number, payload: socket.send_multipart((b"", number, payload))


@pytest.mark.parametrize("form", EventFormat)
async def test_what_an_engine_stores_and_removes_is_known(tmp_path: Path, form: EventFormat):
    listening = Listening(tmp_path)
    with listening.publisher(form) as publisher:
        publisher.publish([stored(0), stored(1)])
        async with listening.running():
            await until(lambda: listening.holds(1))
            assert listening.holds(0)
            assert listening.blocks.complete("a")
            await say_until(lambda: publisher.publish([stored(2)]), lambda: listening.holds(2))
            publisher.publish([Removed(keys(0))])
            await until(lambda: not listening.holds(0))
            assert listening.holds(1)
        assert set(listening.fates()) == {Fate.APPLIED}
        assert listening.blocks.noted == 0  # nobody listens any more


async def test_without_a_replay_only_what_comes_is_known(tmp_path: Path):
    listening = Listening(tmp_path, replay=False)
    with listening.publisher() as publisher:
        publisher.publish([stored(0)])
        async with listening.running():
            await say_until(lambda: publisher.publish([stored(1)]), lambda: listening.holds(1))
            assert not listening.holds(0)
            assert not listening.blocks.complete("a")
            assert listening.fates()[Fate.LOST] >= 1


async def test_what_the_engine_has_not_kept_makes_its_cache_unknown(tmp_path: Path):
    listening = Listening(tmp_path)
    with listening.publisher(keep=2) as publisher:
        for number in range(4):
            publisher.publish([stored(number)])
        async with listening.running():
            await until(lambda: listening.holds(3))
            assert [listening.holds(n) for n in range(4)] == [False, False, True, True]
            assert not listening.blocks.complete("a")
            assert listening.fates() == {Fate.LOST: 2, Fate.APPLIED: 2}


async def test_a_restarted_engine_is_cold(tmp_path: Path):
    listening = Listening(tmp_path)
    index, prompt = listening.prefixes.index, Prompt((1,), (8,))
    index.placed("p", "a", prompt, 0.0)
    async with listening.running():
        with listening.publisher() as publisher:
            publisher.publish([stored(0)])
            await until(lambda: listening.holds(0))
        await until(lambda: not listening.holds(0))
        assert index.held("p", prompt, 0.0) == {}
        with listening.publisher() as publisher:
            publisher.publish([stored(1)])
            await until(lambda: listening.holds(1))
            assert not listening.holds(0)
            assert listening.blocks.complete("a")


async def test_numbers_that_fall_on_a_living_connection_are_a_restart(tmp_path: Path):
    """A proxy between may keep the connection."""
    listening = Listening(tmp_path, replay=False)
    log, again = EventLog(4, EventFormat.MAP), EventLog(4, EventFormat.MAP)
    with speaking(listening) as say:
        async with listening.running():
            await say_until(lambda: say(*log.add([stored(0)], 0.0)), lambda: listening.holds(0))
            say(*log.add([stored(0)], 0.0))
            say(*again.add([stored(1)], 0.0))
            await until(lambda: listening.holds(1))
            assert not listening.holds(0)
            assert listening.blocks.complete("a")
            assert listening.prefixes.kv_counts.restarts == {"p": 1}


async def test_what_is_no_batch_is_counted_and_passed_over(tmp_path: Path):
    listening = Listening(tmp_path, replay=False)
    log = EventLog(4, EventFormat.MAP)
    with speaking(listening) as say:
        async with listening.running():
            await say_until(lambda: say(b"short", b""), lambda: Fate.MALFORMED in listening.fates())
            number, _ = log.add([stored(0)], 0.0)
            say(number, b"\xc1")
            say(*log.add([stored(1)], 0.0))
            await until(lambda: listening.holds(1))
    assert listening.fates()[Fate.APPLIED] == 1


async def test_a_replay_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_events, "REPLAY_TIMEOUT_S", 0.05)
    listening = Listening(tmp_path)
    log = EventLog(4, EventFormat.MAP)
    with speaking(listening) as say:
        async with listening.running():
            await say_until(lambda: say(*log.add([stored(0)], 0.0)), lambda: listening.holds(0))
    assert listening.fates()[Fate.UNANSWERED] >= 1


async def test_a_replica_that_leaves_is_not_listened_to(tmp_path: Path):
    listening = Listening(tmp_path)
    with listening.publisher() as publisher:
        publisher.publish([stored(0)])
        async with listening.running():
            await until(lambda: listening.holds(0))
            listening.prefixes.adopt(Fleet((Pool("p", "m"),)))
            await until(lambda: listening.blocks.noted == 0)


def test_endpoints_are_made_of_the_replicas_host_id_and_rank():
    prefixes = Prefixes(Index())
    urls = "engine: {kv_events: 'tcp://{host}:5557', replay: 'ipc:///run/{id}'}"
    file = (
        f"pools: {{p: {{{urls}, replicas: [{{id: a, address: 'h:1'}}]}}, q: {{replicas: [{{id: b, address: 'i:1'}}]}}}}"
    )
    ranks = tuple(Replica(f"c-{rank}", "10.0.0.3:8000", rank=rank) for rank in (0, 2))
    replicas = (REPLICA, Replica("b", "[fd00::1]:8000"), *ranks)
    prefixes.adopt(Fleet((Pool("p", "m", replicas=replicas), Pool("q", "n"))))
    assert prefixes.sources == frozenset()
    prefixes.configure(parse(file, "f"))
    assert prefixes.sources == {
        Source(("p", "a"), "tcp://10.0.0.1:5557", "ipc:///run/a"),
        Source(("p", "b"), "tcp://[fd00::1]:5557", "ipc:///run/b"),
        Source(("p", "c-0"), "tcp://10.0.0.3:5557", "ipc:///run/c-0"),
        Source(("p", "c-2"), "tcp://10.0.0.3:5559", "ipc:///run/c-2"),
    }
