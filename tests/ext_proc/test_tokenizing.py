"""Prompts that are tokenized by an engine once, off the hot path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from homing.core.prefix.events import Stored
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.ext_proc.tokenizing import MAX_BODY_BYTES, MAX_QUEUE, MIN_TOKENS, Learner, Learning, Sent
from tests.http_serving import answering

IDS = list(range(1000))
PROMPT = Prompt((1, 2), (900, 1000))
CHAT = {"model": "alias", "messages": [{"role": "user", "content": "hello"}], "temperature": 1, "tools": [{"x": 1}]}


@dataclass
class Engine:
    """Answers `/tokenize` as vLLM does."""

    address: str = ""
    status: int = 200
    answer: bytes = json.dumps({"count": 1000, "max_model_len": 8192, "tokens": IDS}).encode()
    asked: list[tuple[str, object]] = field(default_factory=list)


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.asked.append((self.path, json.loads(body)))
            self.send_response(made.status)
            self.send_header("content-length", str(len(made.answer)))
            self.end_headers()
            self.wfile.write(made.answer)

        def log_message(self, *_: object) -> None:
            pass

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as made.address:
        yield made


@pytest.fixture
def index() -> Index:
    made = Index()
    made.pool("p").blocks.apply("a", Stored(range(62), None, IDS[:992], 16))
    return made


def sent(engine: Engine, prompt: Prompt = PROMPT, **changes: object) -> Sent:
    return Sent(("p", "a"), engine.address, "served", prompt, json.dumps(CHAT | changes).encode())


@asynccontextmanager
async def running(learner: Learner):
    task = asyncio.create_task(learner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def outcome(learner: Learner, offered: Sent) -> Learning:
    learner.offer(offered)
    async with running(learner), asyncio.timeout(10):
        while not learner.outcomes:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    ((_, found),) = learner.outcomes
    return found


async def test_a_prompt_that_was_learned_is_found_where_its_blocks_are(engine: Engine, index: Index):
    learner = Learner(index, 0.0)
    assert await outcome(learner, sent(engine)) is Learning.LEARNED
    assert engine.asked == [
        ("/tokenize", {"model": "served", "messages": CHAT["messages"], "tools": CHAT["tools"]}),
    ]
    assert index.held("p", PROMPT, 0.0) == {"a": 1000}
    assert index.held("p", Prompt((1, 9), (900, 950)), 0.0) == {"a": 900}


async def test_a_salt_is_part_of_the_blocks(engine: Engine, index: Index):
    assert await outcome(Learner(index, 0.0), sent(engine, cache_salt="acme")) is Learning.LEARNED
    assert index.held("p", PROMPT, 0.0) == {}


async def test_each_prompt_is_asked_for_once(engine: Engine, index: Index):
    """Five users of one tenant come at the same time: the first question answers them all."""
    learner = Learner(index, 0.0)
    for user in range(5):
        learner.offer(sent(engine, Prompt((1, 10 + user), (6000, 6000 + MIN_TOKENS - 1))))
    learner.offer(sent(engine, Prompt((77,), (MIN_TOKENS,))))
    async with running(learner), asyncio.timeout(10):
        while learner.outcomes["p", Learning.LEARNED] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert len(engine.asked) == 2


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (400, b"{}", Learning.REFUSED),
        (404, b"{}", Learning.REFUSED),
        (500, b"{}", Learning.FAILED),
        (200, b"{}", Learning.FAILED),
        (200, b"not JSON", Learning.FAILED),
        (200, b'{"tokens": [-1]}', Learning.FAILED),
    ],
)
async def test_an_engine_that_does_not_tokenize_teaches_nothing(
    engine: Engine, index: Index, status: int, answer: bytes, expected: Learning
):
    engine.status, engine.answer = status, answer
    assert await outcome(Learner(index, 0.0), sent(engine)) is expected
    assert index.held("p", PROMPT, 0.0) == {}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "not:an:address"])
async def test_an_engine_that_is_away_teaches_nothing(index: Index, address: str):
    assert await outcome(Learner(index, 0.0), sent(Engine(address))) is Learning.FAILED


@pytest.mark.parametrize("changes", [{"messages": None}, {"system": "Anthropic's shape"}])
async def test_only_chats_in_openais_shape_are_asked_for(engine: Engine, index: Index, changes: dict[str, object]):
    assert await outcome(Learner(index, 0.0), sent(engine, **changes)) is Learning.REFUSED
    assert engine.asked == []


def test_what_is_short_or_of_a_pool_without_events_is_not_offered(engine: Engine, index: Index):
    learner = Learner(index)
    for _ in range(2 * MAX_QUEUE):
        learner.offer(sent(engine, Prompt((1,), (MIN_TOKENS - 1,))))
        learner.offer(Sent(("q", "a"), engine.address, "m", PROMPT, b""))
    assert learner.outcomes == {}


def test_what_is_too_much_is_dropped_and_counted(engine: Engine, index: Index):
    learner = Learner(index)
    learner.offer(Sent(("p", "a"), engine.address, "m", PROMPT, bytes(MAX_BODY_BYTES + 1)))
    for _ in range(MAX_QUEUE + 3):
        learner.offer(sent(engine))
    assert learner.outcomes == {("p", Learning.DROPPED): 4}
