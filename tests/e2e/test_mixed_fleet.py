"""Envoy and NGINX before the same replicas: pickers that know each other send a session to one replica from both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from e2e.client import Answer, chat_body, eventually, many, request
from e2e.nginx_stack import nginx_stack
from e2e.stack import SimulatedPool, replica_ids, static_stack, until

pytestmark = pytest.mark.e2e

MODEL = "a-model"
POOL = SimulatedPool("pool", MODEL, 3)


async def turns(port: int, sessions: list[str | None]) -> list[Answer]:
    messages = [request(chat_body(MODEL), {"x-session-id": s} if s else None) for s in sessions]
    answers = await many(port, messages, 10)
    assert [a.status for a in answers] == [200] * len(sessions)
    return answers


def homes(answers: list[Answer]) -> list[str]:
    return [a.headers["x-homing-replica"] for a in answers]


async def test_a_session_has_one_home_behind_both(short_directory: Path) -> None:
    directory = short_directory / "mixed"
    directory.mkdir()
    (directory / "secret").write_text("a secret of at least 16 bytes")
    extra = {"sessions": {"secret": f"file:{directory}/secret"}}
    with static_stack(directory / "envoy", (POOL,), extra) as envoy:
        same = replace(POOL, ports=tuple(envoy.replica_ports[r] for r in replica_ids(POOL)))
        with nginx_stack(directory / "nginx", (same,), extra=extra, pickers=("picker",)) as nginx:
            envoy.picker_flags = ("--sibling", nginx.socket("picker", "http"))
            nginx.picker_flags = ("--sibling", f"127.0.0.1:{envoy.picker_http['picker']}")
            for stack in (envoy, nginx):
                stack.processes.kill("picker")
                stack.start_picker("picker")
            until(lambda: nginx.picker("picker", "/readyz") is not None, what="NGINX's picker")
            until(lambda: envoy.pickers_ready() and envoy.pickers_in_service() == 2, what="Envoy's pickers")

            async def asked() -> bool:  # each of NGINX's workers passes over a picker that failed for a second
                return all(a.headers["x-homing-decision"] != "fallback" for a in await turns(nginx.port, ["warm"] * 10))

            await eventually(asked, "NGINX to ask its picker")
            begun = await turns(envoy.data, [None] * 20)
            ids: list[str | None] = [a.headers["x-session-id"] for a in begun]
            until(lambda: nginx.metric("homing_sessions") >= 21, 10, "NGINX's picker to hear of them")
            there = await turns(nginx.port, ids)
            assert {a.headers["x-homing-decision"] for a in there} == {"home"}
            assert homes(there) == homes(begun)
            begun_there = await turns(nginx.port, [None] * 20)
            more: list[str | None] = [a.headers["x-session-id"] for a in begun_there]
            until(lambda: envoy.metric("homing_sessions") >= 41, 10, "Envoy's picker to hear of them")
            here = await turns(envoy.data, more)
            assert {a.headers["x-homing-decision"] for a in here} == {"home"}
            assert homes(here) == homes(begun_there)
