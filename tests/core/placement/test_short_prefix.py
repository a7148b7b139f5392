"""A prefix that saves next to nothing draws nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica
from homing.core.placement.decision import Arrival
from homing.core.placement.home import LEAST_HELD, Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.placement.prefix import NoPrefixes
from homing.core.prefix.prompt import Prompt
from homing.core.session import Homes, SessionKey

POOL = CompiledPool.of(Pool("p", "model", replicas=tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:80") for i in range(3))))


class HeldByOne(NoPrefixes):
    """The whole of every prompt is in the cache of gpu-0."""

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        return {"gpu-0": prompt.total}


@pytest.mark.parametrize(
    ("tokens", "at_the_holder"), [(LEAST_HELD // 4, 20), (LEAST_HELD * 40, 60)], ids=["a greeting", "a system prompt"]
)
def test_sessions_gather_where_their_prompt_is_only_if_it_saves_something(tokens: int, at_the_holder: int) -> None:
    placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"s", lambda n: 0, HeldByOne())
    homes: Counter[str] = Counter()
    for number in range(60):
        name = b"%d" % number
        prompt = Prompt((1,), (tokens,))
        decision = placer.place(
            POOL, Arrival(SessionKey(b"", name, b"/" + name), False, 4 * tokens, prompt=prompt), 0.0
        )
        assert decision is not None
        homes[decision.place[1]] += 1
    assert homes["gpu-0"] == at_the_holder
