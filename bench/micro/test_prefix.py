"""The index of prefixes, full: 1,000,000 blocks at 40 replicas, and a prompt of 6,000 tokens that five of them hold."""

from __future__ import annotations

import json
from array import array
from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.memory import filled
from homing.core.history import read
from homing.core.prefix.blocks import chain
from homing.core.prefix.events import Removed, Stored
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt

IDS = list(range(6000))
SYSTEM = "x" * 24_000


@pytest.fixture(scope="module")
def index() -> Index:
    made = filled(blocks=990_000, replicas=40)
    blocks = made.pool("p").blocks
    for replica in range(5):
        blocks.apply(f"gpu-{replica}", Stored(range(-375, 0), None, IDS, 16))
    made.pool("p").learned.learn(prompt(), {16: array("Q", chain(IDS, 16))}, len(IDS))
    return made


def body(user: int) -> bytes:
    return json.dumps(
        {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"I am {user}"}]}
    ).encode()


def prompt(user: int = 0) -> Prompt:
    found = read(body(user), (), b"seed").prompt
    assert found is not None
    return found


def test_look_up_where_blocks_are_known(benchmark: BenchmarkFixture, index: Index) -> None:
    asked = prompt(1)
    assert len(benchmark(lambda: index.held("p", asked, 0.0))) == 5


def test_look_up_where_nothing_is_known(benchmark: BenchmarkFixture, index: Index) -> None:
    asked = Prompt(tuple(range(7)), tuple(range(1000, 8000, 1000)))
    assert benchmark(lambda: index.held("p", asked, 0.0)) == {}


def test_note_a_prompt_that_was_sent(benchmark: BenchmarkFixture) -> None:
    index, prompts, number = Index(), [prompt(user) for user in range(1000)], count()
    benchmark(lambda: index.placed("p", "gpu-0", prompts[next(number) % 1000], 0.0))


def test_read_a_body_of_24_kilobytes(benchmark: BenchmarkFixture) -> None:
    """History and prompt together."""
    data = body(1)
    benchmark(lambda: read(data, (), b"seed"))


def test_store_and_remove_a_block(benchmark: BenchmarkFixture, index: Index) -> None:
    """One of an event with 64 blocks, both ways: divide by 64."""
    blocks, ids = index.pool("p").blocks, list(range(7, 7 + 64 * 16))

    def both() -> None:
        blocks.apply("gpu-39", Stored(range(-64, 0), None, ids, 16))
        blocks.apply("gpu-39", Removed(range(-64, 0)))

    benchmark(both)
