"""Requests whose prompts are looked at after they have ended: which, how many at a time, and what is counted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from homing.core.config import parse
from homing.core.context.proof import Case
from homing.core.fleet import Pool
from homing.core.template.probe import RefusedError
from homing.ext_proc import proof as proving
from homing.ext_proc.counts import Counts
from homing.ext_proc.proof import Offer, Proof, Unchecked, UnprovableError

PATH = b"/v1/chat/completions"
POOL = Pool("p", "m")
SAID = json.dumps({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]}).encode()
OFFER = Offer(POOL, PATH, SAID, SAID, repaired=False)


class FakePrompts:
    """Answers with `prompt`, or raises it."""

    def __init__(self, prompt: str | Exception) -> None:
        self.answer = prompt
        self.cases: list[Case] = []

    async def prompt(self, pool: Pool, case: Case, key: object) -> str:
        self.cases.append(case)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, chance: float = 0.5, **settings: object) -> None:
        self.counts = Counts()
        self.proof = Proof(self.counts, lambda: chance)
        replicas = [{"id": "r", "address": "10.0.0.1:1"}]
        self.proof.configure(parse(json.dumps({"pools": {"p": {"proof": settings, "replicas": replicas}}}), "f"))

    def counted(self) -> dict[str, dict[object, int]]:
        counts = self.counts
        found = {"complete": counts.complete, "incomplete": counts.incomplete, "unchecked": counts.unchecked}
        return {name: dict(counter) for name, counter in found.items() if counter}

    async def prove(self, prompts: FakePrompts, *offers: Offer) -> None:
        for offer in offers:
            assert self.proof.hold(offer)
            self.proof.offer(offer)
        task = asyncio.create_task(self.proof.run(prompts))
        async with asyncio.timeout(5):
            while sum(sum(counter.values()) for counter in self.counted().values()) < len(offers):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        task.cancel()


@pytest.mark.parametrize(
    ("answer", "repaired", "counted"),
    [
        ("<s>Be kind.</s>hi", False, {"complete": {"p": 1}}),
        ("<s>Be kind.</s>hi", True, {"complete": {"p": 1}}),
        ("<s></s>hi", False, {"incomplete": {("p", "lost"): 1}}),
        ("<s></s>hi", True, {"incomplete": {("p", "repaired"): 1}}),
        (RefusedError("no"), False, {"incomplete": {("p", "refused"): 1}}),
        (UnprovableError(Unchecked.TEMPLATE), False, {"unchecked": {"template": 1}}),
        (ZeroDivisionError(), False, {"unchecked": {"error": 1}}),
    ],
)
async def test_a_prompt_is_looked_at_and_counted(answer: str | Exception, repaired: bool, counted: object):
    bench = Bench()
    await bench.prove(FakePrompts(answer), replace(OFFER, repaired=repaired))
    assert bench.counted() == counted


async def test_what_cannot_be_rendered_is_counted_and_the_next_is_looked_at():
    bench, prompts = Bench(), FakePrompts("Be kind.")
    await bench.prove(prompts, replace(OFFER, sent=b"{}"), OFFER)
    assert bench.counted() == {"complete": {"p": 1}, "unchecked": {"shape": 1}}
    assert [case.texts for case in prompts.cases] == [("Be kind.",)]


async def test_what_is_held_is_bounded_by_number_and_by_bytes_and_room_comes_back(monkeypatch: pytest.MonkeyPatch):
    bench = Bench()
    assert [bench.proof.hold(OFFER) for _ in range(proving.MAX_HELD + 2)] == [True] * proving.MAX_HELD + [False] * 2
    assert bench.counted() == {"unchecked": {"queue": 2}}
    bench.proof.offer(OFFER)
    task = asyncio.create_task(bench.proof.run(FakePrompts("Be kind.")))
    async with asyncio.timeout(5):
        while not bench.proof.hold(OFFER):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    task.cancel()
    monkeypatch.setattr(proving, "MAX_HELD_BYTES", 10)
    other = Bench()
    assert not other.proof.hold(OFFER)
    assert other.counted() == {"unchecked": {"queue": 1}}


def test_a_body_that_is_too_long_is_not_held():
    bench = Bench()
    assert not bench.proof.hold(replace(OFFER, said=b"x" * (proving.MAX_BODY_BYTES + 1)))
    assert bench.counted() == {"unchecked": {"size": 1}}


@pytest.mark.parametrize(
    ("settings", "chance", "sampled"),
    [({}, 0.009, True), ({}, 0.011, False), ({"sample": 0}, 0.0, False), ({"sample": 1}, 0.999, True)],
)
def test_the_sample_is_the_share_that_the_file_says(settings: dict[str, object], chance: float, sampled: bool):
    bench = Bench(chance, **settings)
    assert bench.proof.samples(POOL) is sampled
    assert not bench.proof.samples(Pool("zzz", "m"))  # a pool that the file does not have
