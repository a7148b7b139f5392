"""How long a conversation a pool's engines take, asked of each that serves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest

from homing.control.membership import Membership
from homing.control.templates import prober
from homing.control.templates.finding import Finder
from homing.control.templates.lengths import Lengths
from homing.core.config import parse
from homing.core.fleet import HealthChanged, ProcessSeen


@pytest.fixture
async def follow(tmp_path: Path, background, monkeypatch: pytest.MonkeyPatch):
    """Follows the engines of two pools: `p`, which asks, and `q`, which does not."""
    monkeypatch.setattr(prober, "FIRST_RETRY_S", 0.02)
    finders = []

    def start(*addresses: str) -> Membership:
        replicas = ", ".join(f"{{id: r{i}, address: '{a}'}}" for i, a in enumerate(addresses))
        text = (
            f"pools: {{p: {{served_name: m, context: {{max_tokens: auto}}, replicas: [{replicas}]}},"
            f" q: {{served_name: n, context: {{max_tokens: 5}}, replicas: [{{id: r, address: '{addresses[0]}'}}]}}}}"
        )
        membership = Membership(parse(text, "homing.yaml"))
        finders.append(Finder(tmp_path / "homing.yaml", Random(1)))
        background(Lengths(membership, finders[-1], Random(1)).run())
        return membership

    yield start
    for finder in finders:
        await finder.__aexit__()


def lengths(membership: Membership) -> list[int]:
    return [pool.max_model_len for pool in membership.view.fleet.pools]


async def test_the_smallest_of_those_that_serve_counts(follow, start_engine, until):
    membership = follow(await start_engine(None, 4096), await start_engine(None, 2048))
    await asyncio.sleep(0.05)
    assert lengths(membership) == [0, 0]
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: lengths(membership) == [4096, 0])
    membership.apply(HealthChanged("p", "r1", True))
    await until(lambda: lengths(membership) == [2048, 0])
    membership.apply(HealthChanged("p", "r1", False))
    await until(lambda: lengths(membership) == [4096, 0])
    membership.apply(HealthChanged("p", "r0", False))
    await asyncio.sleep(0.05)
    assert lengths(membership) == [4096, 0]


async def test_another_process_is_asked_again(follow, start_engine, until, monkeypatch: pytest.MonkeyPatch):
    asked = []

    async def answer(self: Finder, address: str, model: str, key: object) -> int:
        asked.append((address, model, key))
        return 100 * len(asked)

    monkeypatch.setattr(Finder, "length_of_engine", answer)
    membership = follow("127.0.0.1:9")
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: lengths(membership) == [100, 0])
    membership.apply(ProcessSeen("p", "r0", 7))
    await until(lambda: lengths(membership) == [200, 0])
    assert asked == [("127.0.0.1:9", "m", None)] * 2


async def test_one_that_does_not_say_is_asked_again_and_told_of_once(follow, replicas, until, caplog):
    membership = follow(replicas[0].address)
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: replicas[0].asked >= 3)
    assert lengths(membership) == [0, 0]
    (line,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(f"pool p: {replicas[0].address} does not say how many tokens it takes (not an answer of")
