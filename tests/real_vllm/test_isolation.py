"""Tenants share no block of a real prefix cache where their pool has `isolation`."""

from __future__ import annotations

import pytest
from real_vllm.engines import SALTED, Engine, cached, reused
from real_vllm.gateway import Gateway

from bench.calibration.prose import Prose

pytestmark = pytest.mark.vllm


def test_a_tenant_finds_what_it_sent_itself_and_nothing_else(homing: Gateway, fleet: dict[str, Engine]) -> None:
    """The same prompt by two tenants, each in sessions enough to meet every engine."""
    prompt = [{"role": "user", "content": Prose(400).words(300)}]
    tokens = fleet["a"].tokens(prompt)
    met: dict[str, set[str]] = {"ours": set(), "theirs": set()}
    for tenant, replicas in met.items():
        for number in range(12):
            answer = homing.chat(prompt, f"{tenant}-{number}", SALTED, tenant)
            served = answer.headers["x-homing-replica"]
            assert cached(answer) == (reused([tokens], tokens) if served in replicas else 0), (tenant, number)
            replicas.add(served)
    assert met["ours"] & met["theirs"]
