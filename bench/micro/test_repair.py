"""A conversation of 100 turns and 400 KB through parsing, repair and writing."""

from __future__ import annotations

import json

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from homing.core.chat.body import encode, members
from homing.core.chat.repair import Repairs, Switches
from homing.core.chat.shapes import CHAT
from homing.core.template.record import Capabilities, Fate

RECORDS = {
    "clean": Capabilities(developer=Fate.DROPPED),
    "no system role": Capabilities(system=Fate.REFUSED, alternates=True, user_first=True),
    "no lists": Capabilities(systems=Fate.LAST_ONLY, later_system=Fate.DROPPED, content_lists=Fate.DROPPED),
}


def body(lists: bool) -> bytes:
    said = 'The quick brown fox jumps over "the" lazy dog. ' * 85
    content = [{"type": "text", "text": said}] if lists else said
    messages: list[dict[str, object]] = [{"role": "system", "content": content}]
    for _ in range(50):
        messages += [{"role": "user", "content": content}, {"role": "assistant", "content": said}]
        messages += [{"role": "system", "content": "Mind the time."}]
    return json.dumps({"model": "m", "messages": [*messages, {"role": "user", "content": content}]}).encode()


@pytest.mark.parametrize("lists", [False, True], ids=["text", "lists"])
@pytest.mark.parametrize("name", RECORDS)
def test_a_long_conversation(benchmark: BenchmarkFixture, name: str, lists: bool) -> None:
    sent, repairs = body(lists), Repairs.of(RECORDS[name], Switches())

    def through() -> bytes:
        parsed = members(sent)
        turns = CHAT.read(parsed)
        assert turns is not None
        repaired, done = repairs.apply(turns)
        return encode(CHAT.write(parsed, repaired)) if done else sent

    benchmark(through)
