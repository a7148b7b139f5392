"""The table of requests of the Envoy data plane, against NGINX alone (with njs), and with pickers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.nginx_stack import NginxStack, nginx_stack
from e2e.stack import SimulatedPool
from e2e.test_requests import CASES, Case

pytestmark = pytest.mark.e2e

POOLS = (SimulatedPool("pool-a", "model-a", 2, aliases=("chat",)), SimulatedPool("pool-b", "model-b", 1))


COMPRESSED = {"gzip", "gzip of a text that repeats itself"}
"""NGINX cannot unpack them, and says so."""
WITH_PICKER = {"an id in the body", "a conversation in the body"}
"""NGINX alone reads ids in headers only: these begin new sessions."""


@pytest.fixture(scope="module", params=[(), ("picker", "standby")], ids=["alone", "with pickers"])
def nginx(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[NginxStack]:
    directory = short_directory / f"nginx-{len(request.param)}"
    with nginx_stack(directory, POOLS, pickers=request.param) as stack:
        yield stack


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_request(nginx: NginxStack, case: Case) -> None:
    headers = [(k.encode(), v if isinstance(v, bytes) else v.encode()) for k, v in case.headers]
    answer = httpx.post(nginx.url + case.path, content=case.body, headers=headers, timeout=10, trust_env=False)
    if case.name in COMPRESSED:
        assert answer.status_code == 415
        return
    assert answer.status_code == case.status, answer.text
    assert answer.headers.get_list("x-session-id"), "an id comes back always"
    if case.pool is not None:
        assert answer.headers["x-homing-replica"].startswith(case.pool)
    if case.served is not None:
        assert answer.json()["model"] == case.served
    if case.error is not None:
        assert (answer.json()["error"]["message"], answer.json()["error"]["code"]) == (case.error, case.status)
    if case.session is not None and (nginx.pickers or case.name not in WITH_PICKER):
        assert answer.headers["x-session-id"] == case.session
    if case.decisions:
        assert answer.headers["x-homing-decision"] in (case.decisions if nginx.pickers else ("hash",))


def test_models_are_listed_by_nginx_alone(nginx: NginxStack) -> None:
    listed = httpx.get(f"{nginx.url}/v1/models", trust_env=False).json()
    assert [model["id"] for model in listed["data"]] == ["model-a", "chat", "model-b"]
