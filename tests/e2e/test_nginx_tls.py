"""NGINX over TLS to its clients and to its engines, by njs and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from authority import Authority
from e2e.nginx_stack import NginxStack
from e2e.stack import Processes, SimulatedPool, free_ports, replica_ids, until

pytestmark = pytest.mark.e2e

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


@pytest.fixture(params=[True, False], ids=["njs", "no njs"])
def stack(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[tuple[NginxStack, Authority]]:
    directory = short_directory / f"tls-{request.param}"
    authority = Authority(directory / "certs")
    authority.issue("edge")
    authority.issue("engine", "vllm.internal")
    authority.issue("client")
    certs = authority.directory
    shown = {"cert": "file:certs/client.pem", "key": "file:certs/client-key.pem", "ca": "file:certs/ca.pem"}
    pool = SimulatedPool(
        "p",
        "m",
        2,
        sim_flags=(
            *("--ssl-certfile", str(certs / "engine.pem"), "--ssl-keyfile", str(certs / "engine-key.pem")),
            *("--ssl-ca-certs", str(certs / "ca.pem"), "--ttft-ms", "1", "--itl-ms", "1"),
        ),
        engine={"server_name": "vllm.internal", "tls": True, **shown},
    )
    port, *ports = free_ports(3)
    edge = {"cert": "file:certs/edge.pem", "key": "file:certs/edge-key.pem", "client_ca": "file:certs/ca.pem"}
    replica_ports = dict(zip(replica_ids(pool), ports, strict=True))
    made = NginxStack(Processes(directory), (pool,), port, replica_ports, request.param, {"tls": {"listen": edge}})
    try:
        made.write_file()
        made.render()
        for replica_id in replica_ids(pool):
            made.start_replica(pool, replica_id)
        *arguments, directives = made.command
        made.processes.start("nginx", (*arguments, f"daemon off; {directives}"))
        yield made, authority
    finally:
        made.processes.stop_all()


def test_sessions_stay_at_engines_that_are_spoken_to_over_tls(stack: tuple[NginxStack, Authority]) -> None:
    nginx, authority = stack
    url = f"https://127.0.0.1:{nginx.port}/v1/chat/completions"
    with httpx.Client(verify=authority.context("client"), trust_env=False, timeout=10) as client:

        def asked(session: str) -> httpx.Response | None:
            try:
                return client.post(url, json=BODY, headers={"x-session-id": session})
            except httpx.HTTPError:
                return None

        until(lambda: (answer := asked("first")) is not None and answer.status_code == 200, 40, "an answer")
        homes = {}
        for number in range(12):
            answers = [asked(f"s{number}") for _ in range(2)]
            assert [a.status_code for a in answers if a is not None] == [200, 200]
            (homes[number],) = {a.headers["x-homing-replica"] for a in answers if a is not None}
    assert set(homes.values()) == set(replica_ids(nginx.pools[0]))
    with httpx.Client(verify=authority.context(), trust_env=False) as stranger:
        assert stranger.post(url, json=BODY).status_code == 400  # NGINX: no required certificate was sent
