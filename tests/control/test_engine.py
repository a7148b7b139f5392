"""What engines are asked, against a server of a few lines and against the simulated engine's own answers."""

import asyncio
import contextlib
import json

import pytest

from homing.control import engine as module
from homing.control.engine import Asked, Engines


class FakeEngine:
    """Answers by path: (status, body); paths that are in no answer are 404. `hang`: says nothing."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        self.ranks = []
        self.hang = False

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                lines = head.split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path = lines[0].split()[1]
                self.asked.append((path, headers.get("authorization"), json.loads(body) if body else None))
                self.ranks.append(headers.get("x-data-parallel-rank"))
                if self.hang:
                    await asyncio.sleep(3600)
                status, answer = self.answers.get(path, (404, b'{"detail":"Not Found"}'))
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(answer), answer))
                await writer.drain()
        writer.close()


@pytest.fixture
async def engine():
    made = FakeEngine()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


@pytest.fixture
async def engines():
    async with Engines({"p": "secret"}.get) as made:
        yield made


def asked(engine, kind="auto", pool="p"):
    return Asked(pool, engine.address, "m", kind)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        (b"# HELP x\nprocess_start_time_seconds 1.76443205123e+09\n", 1764432051230),
        (b'a 1\nprocess_start_time_seconds{pid="7"} 12.5\n', 12500),
        (b"vllm:num_requests_running 1\n", 0),
        (b"process_start_time_seconds 1.2.3\n", 0),
    ],
)
async def test_when_the_process_began(engine, engines, text, epoch):
    engine.answers["/metrics"] = (200, text)
    assert await engines.epoch(asked(engine)) == epoch


async def test_an_engine_that_does_not_answer_has_no_epoch(engines):
    assert await engines.epoch(Asked("p", "127.0.0.1:1", "m", "auto")) == 0


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}),
        ("completion", "/v1/completions", {"prompt": "hello", "max_tokens": 1}),
        ("embedding", "/v1/embeddings", {"input": "hello"}),
        ("rerank", "/v1/rerank", {"query": "hello", "documents": ["hello"]}),
    ],
)
async def test_the_request_fits_the_kind_and_has_the_key(engine, engines, kind, path, body):
    engine.answers[path] = (200, b"{}")
    assert await engines.unfit(asked(engine, kind)) == ""
    ((got_path, key, got),) = engine.asked
    assert (got_path, key, json.loads(json.dumps(got).lower())) == (path, "bearer secret", body | {"model": "m"})


async def test_the_first_kind_that_the_engine_knows_is_enough(engine, engines):
    engine.answers["/v1/chat/completions"] = (400, b'{"error": {"message": "this model has no chat template"}}')
    engine.answers["/v1/embeddings"] = (200, b"{}")
    assert await engines.unfit(asked(engine)) == ""
    assert [path for path, _, _ in engine.asked] == ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"]


async def test_each_rank_is_asked_by_its_number(engine, engines):
    engine.answers["/v1/chat/completions"] = (200, b"{}")
    for rank in (None, 0, 3):
        await engines.unfit(Asked("p", engine.address, "m", "auto", rank))
    assert engine.ranks == [None, "0", "3"]


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_who_is_refused_has_learned_that_it_lives(engine, engines, status):
    engine.answers["/v1/chat/completions"] = (status, b"")
    assert await engines.unfit(asked(engine, pool="q")) == ""
    assert [(path, key) for path, key, _ in engine.asked] == [("/v1/chat/completions", None)]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b"", "a chat request is answered with 500"),
        (404, b'{"error": {"message": "The model `m` does not exist."}}', "it does not serve the model m"),
    ],
)
async def test_who_cannot_serve(engine, engines, status, body, why):
    engine.answers["/v1/chat/completions"] = (status, body)
    assert await engines.unfit(asked(engine)) == why


async def test_who_never_answers_cannot_serve(engine, engines, monkeypatch):
    monkeypatch.setattr(module, "PROOF_TIMEOUT_S", 0.1)
    engine.hang = True
    assert await engines.unfit(asked(engine)) == "a request takes longer than 0.1 s"


async def test_who_is_not_there_cannot_serve(engines):
    why = await engines.unfit(Asked("p", "127.0.0.1:1", "m", "auto"))
    assert why == "a request ends without an answer (ConnectError)"
