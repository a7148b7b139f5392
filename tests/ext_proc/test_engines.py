"""Engines are asked for their counters, each at its own pace. Asking is a fake; once, a real one over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random
from threading import Thread

import pytest

from homing.core.fleet import Fleet, Pool, Replica
from homing.core.placement.counters import Counters
from homing.core.placement.load import Place
from homing.core.placement.pools import CompiledFleet
from homing.ext_proc.engines import Engines, HttpAsk

TEXT = b'vllm:num_requests_waiting{engine="0"} 2.0\nvllm:prefix_cache_queries_total{engine="0"} 10.0\n'


def fleet(*addresses: str) -> CompiledFleet:
    replicas = tuple(Replica(f"gpu-{i}", address) for i, address in enumerate(addresses))
    return CompiledFleet.of(Fleet((Pool("p", "m", replicas=replicas),)))


class Asking:
    """Answers at once, but for those that hang or are away; knows who was asked how often."""

    def __init__(self, hangs: tuple[str, ...] = (), away: tuple[str, ...] = ()) -> None:
        self.asked = Counter[str]()
        self.told: list[tuple[Place, Counters, Counters | None]] = []
        self.fleet = fleet("a:1", "b:1", "c:1")
        self._hangs, self._away = hangs, away
        self._enough: tuple[str, int, asyncio.Event] | None = None

    async def ask(self, address: str) -> bytes:
        self.asked[address] += 1
        if self._enough is not None and self._enough[:2] == (address, self.asked[address]):
            self._enough[2].set()
        if address in self._hangs:
            await asyncio.Event().wait()
        if address in self._away:
            raise OSError
        return TEXT

    def tell(self, place: Place, counters: Counters, before: Counters | None) -> None:
        self.told.append((place, counters, before))

    async def until(self, address: str, times: int) -> None:
        engines = Engines(self.ask, lambda: self.fleet, self.tell, Random(1), interval_s=0.002)
        enough = asyncio.Event()
        self._enough = (address, times, enough)
        running = asyncio.create_task(engines.run())
        try:
            async with asyncio.timeout(5):
                await enough.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_each_is_asked_again_and_again_and_what_it_says_is_told_with_what_it_said_before():
    asking = Asking()
    await asking.until("a:1", 4)
    mine = [(counters, before) for place, counters, before in asking.told if place == ("p", "gpu-0")]
    said = Counters(waiting=2, queried=10)
    assert mine[:2] == [(said, None), (said, said)]


async def test_one_that_hangs_delays_nobody():
    asking = Asking(hangs=("b:1",))
    await asking.until("c:1", 20)
    assert asking.asked["b:1"] == 1


async def test_one_that_is_away_is_asked_less_and_less():
    asking = Asking(away=("b:1",))
    await asking.until("a:1", 100)
    assert 1 <= asking.asked["b:1"] < 15


async def test_who_leaves_the_fleet_is_asked_no_more_and_who_comes_is():
    asking = Asking()
    await asking.until("b:1", 2)
    asking.fleet = fleet("a:1", "d:1")
    before = asking.asked["b:1"]
    await asking.until("d:1", 3)
    assert asking.asked["b:1"] == before


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("content-length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, *_: object) -> None: ...


async def test_the_real_question_over_http():
    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        async with HttpAsk() as ask:
            assert await ask(f"127.0.0.1:{server.server_port}") == TEXT
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()


async def test_an_engine_that_is_away_is_an_os_error():
    async with HttpAsk() as ask:
        with pytest.raises(OSError, match="connect"):
            await ask("127.0.0.1:1")
