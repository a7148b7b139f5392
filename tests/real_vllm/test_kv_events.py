"""KV events of real engines in the pickers' index, and what placement makes of them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import zmq
from e2e.stack import HOMING, Processes, answers, free_ports, summed, until
from real_vllm.engines import MODEL, Engine, cached, reused
from real_vllm.gateway import ENDS, POOL, Gateway, Messages

from bench.calibration.engines import BLOCK_SIZE
from bench.calibration.prose import Prose
from homing.core.prefix.index import SETTLED_S

pytestmark = pytest.mark.vllm


def prompt(seed: int, words: int, question: str) -> list[dict[str, str]]:
    system = f"Prompt {seed}. {Prose(seed).words(words)}"
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def send(engine: Engine, messages: Messages) -> None:
    """Past the gateway."""
    engine.http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages, **ENDS}).raise_for_status()


def test_the_picker_counts_the_blocks_that_an_engine_stores(homing: Gateway, fleet: dict[str, Engine]) -> None:
    before = {name: homing.blocks(name) for name in fleet}
    messages = prompt(300, 600, "good morning")
    home = homing.chat(messages).headers["x-homing-replica"]
    stored = len(fleet[home].tokens(messages)) // BLOCK_SIZE
    assert stored > 4
    until(lambda: homing.blocks(home) == before[home] + stored, what="the blocks")
    assert {name: homing.blocks(name) for name in fleet} == {**before, home: before[home] + stored}
    assert homing.metric("homing_prefix_complete", pool=POOL, replica=home) == 1


def test_users_are_served_where_the_events_say_that_their_prompt_is(homing: Gateway, fleet: dict[str, Engine]) -> None:
    """Not where homing has sent it: that engine dropped it, and the other one had it from elsewhere."""

    def learned() -> float:
        return homing.metric("homing_prompts_learned_total", pool=POOL, outcome="learned")

    send(fleet["a"], prompt(309, 200, "hello"))
    until(lambda: homing.blocks("a") > 0, what="any block: prompts are learned where an engine tells of its blocks")
    known = learned()
    sent_to = homing.chat(prompt(310, 2000, "I am the first")).headers["x-homing-replica"]
    until(lambda: learned() > known, what="the prompt's tokens")
    other = next(name for name in fleet if name != sent_to)
    had, shared = homing.blocks(other), prompt(310, 2000, "I came another way")
    send(fleet[other], shared)
    until(lambda: homing.blocks(other) > had, what="the blocks of the other engine")
    fleet[sent_to].http.post("/reset_prefix_cache").raise_for_status()
    send(fleet[sent_to], [{"role": "user", "content": "hello"}])  # vLLM tells with its next step
    until(lambda: homing.blocks(sent_to) == 0, what="the cache to be empty")
    time.sleep(SETTLED_S)  # until then the blocks might be on their way
    for name in ("Ann", "Ben", "Cem"):
        messages = prompt(310, 2000, f"I am {name}")
        answer = homing.chat(messages)
        assert (answer.headers["x-homing-replica"], answer.headers["x-homing-decision"]) == (other, "new")
        assert cached(answer) == reused([fleet[other].tokens(shared)], fleet[other].tokens(messages)) > 2000
        receipts = homing.receipts(answer.headers["x-session-id"])
        assert {(each["home"], each["hash_owner"], each["choice"]) for each in receipts} == {(other, other, other)}


class LossyWire:
    """Carries an engine's events to a picker, and loses what comes while `losing`."""

    def __init__(self, source: str, sink: str) -> None:
        self.losing = False
        self.lost = 0
        self._context = zmq.Context()
        self._source = self._context.socket(zmq.SUB)
        self._sink = self._context.socket(zmq.PUB)
        for socket in (self._source, self._sink):
            socket.linger = 0
        self._source.subscribe(b"")
        self._source.connect(source)
        self._sink.bind(sink)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._source.close()
        self._sink.close()
        self._context.term()

    def _carry(self) -> None:
        while not self._ended.is_set():
            if self._source.poll(20):
                frames = self._source.recv_multipart()
                if self.losing:
                    self.lost += 1
                else:
                    self._sink.send_multipart(frames)


@contextlib.contextmanager
def late_picker(directory: Path, engine: Engine, events: str) -> Iterator[str]:
    """Alone, and later than the engine: the URL of its metrics."""
    (port,) = free_ports(1)
    file = directory / "late.yaml"
    kv = {"kv_events": events, "replay": f"ipc://{directory}/{engine.id}.replay"}
    replicas = [{"id": engine.id, "address": f"127.0.0.1:{engine.port}"}]
    file.write_text(json.dumps({"pools": {POOL: {"served_name": MODEL, "engine": kv, "replicas": replicas}}}))
    listen = ("--listen", f"unix:{directory}/late.sock", "--http", f"127.0.0.1:{port}")
    processes = Processes(directory)
    processes.start("late", (*HOMING, "ext-proc", "-c", str(file), *listen))
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), 60, "the picker")
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        processes.stop_all()


def test_a_picker_that_came_late_and_missed_events_asks_for_them(
    homing: Gateway, fleet: dict[str, Engine], directory: Path
) -> None:
    engine = fleet["a"]
    send(engine, prompt(320, 600, "before the picker is there"))
    wire = LossyWire(f"ipc://{directory}/a.kv", f"ipc://{directory}/lossy.kv")
    try:
        with late_picker(directory, engine, f"ipc://{directory}/lossy.kv") as metrics:

            def told(name: str, **labels: str) -> float:
                return summed(httpx.get(metrics, trust_env=False).text, name, labels)

            def knows_all() -> bool:
                return told("homing_prefix_blocks", replica="a") == homing.blocks("a") > known

            known = 0.0
            until(knows_all, what="what was stored before the picker came")
            wire.losing = True
            send(engine, prompt(321, 600, "on the lossy wire"))
            until(lambda: wire.lost > 0, what="events to be lost")
            wire.losing = False
            known = homing.blocks("a")
            send(engine, prompt(322, 600, "on the wire again"))
            until(knows_all, what="what was lost")
            assert told("homing_kv_batches_total", outcome="lost") == 0
            assert told("homing_prefix_complete", replica="a") == 1
    finally:
        wire.close()
