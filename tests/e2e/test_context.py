"""Conversations through real Envoy and pickers: what arrives at the replica, byte for byte, and what a template of
another family makes of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from e2e.echo import Echo, echo
from e2e.gateways import KINDS, Gateway, gateway
from e2e.stack import SimulatedPool, static_stack, until
from published_templates import published
from redis_server import RedisServer

pytestmark = pytest.mark.e2e

SYSTEM = {"role": "system", "content": "Answer in short sentences, and never in verse."}
USER = {"role": "user", "content": "What is the capital of France, and since when?"}
ANSWER = {"role": "assistant", "content": "Paris."}
FOLDED = {"role": "user", "content": f"{SYSTEM['content']}\n\n{USER['content']}"}
ALL = {"sample": 1, "ask": True}


@dataclass
class Work:
    stack: Gateway
    echo: Echo

    def send(
        self, model: str, *messages: object, session: str = "s", tenant: str = "acme", **members: object
    ) -> httpx.Response:
        body = {"model": model, "messages": messages, **members}
        headers = {"x-session-id": session, "x-tenant": tenant}
        url = f"{self.stack.url}/v1/chat/completions"
        return httpx.post(url, json=body, headers=headers, trust_env=False, timeout=10)

    @property
    def arrived(self) -> dict[str, object]:
        body: dict[str, object] = json.loads(self.echo.bodies[-1])
        return body


@pytest.fixture(scope="module", params=KINDS)
def work(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Work]:
    template = short_directory / "gemma.jinja"
    template.write_text(published("trl", "gemma"))
    last_only = short_directory / "last_only.jinja"
    last_only.write_text(published("trl", "deepseek_r1_distill"))
    strict: dict[str, object] = {"template": {"file": str(template)}}
    clean: dict[str, object] = {"template": {"source": "none"}}
    auto: dict[str, object] = {**clean, "context": {"max_tokens": "auto"}}
    sim = ("--ttft-ms", "1", "--itl-ms", "1", "--chat-template", str(template))
    with echo() as replica:
        port = (replica.port,)

        def pool(name: str, settings: dict[str, object]) -> SimulatedPool:
            return SimulatedPool(name, name, 1, ports=port, settings=settings)

        pools = (
            SimulatedPool("engine", "engine", 1, sim_flags=sim, settings=strict),
            SimulatedPool("asked", "asked", 1, sim_flags=sim[:4], settings={"proof": ALL}),
            SimulatedPool("told", "told", 1, sim_flags=(*sim[:4], "--max-model-len", "1024"), settings=auto),
            pool("losing", {"template": {"file": str(last_only)}, "repair": {"system": "off"}, "proof": ALL}),
            pool("repaired", strict),
            pool("observed", {**strict, "mode": "observe"}),
            pool("apart", {**clean, "isolation": {"cache_salt": "tenant"}}),
            pool("short", {**clean, "context": {"max_tokens": 100}}),
            pool("remembering", {**clean, "repair": {"lost_system": "restore"}}),
        )
        extra: dict[str, object] = {"tenants": {"header": "x-tenant", "trusted": True}}
        extra["auto"] = {"pools": ["repaired", "remembering"], "default": "remembering"}
        with gateway(request.param, short_directory / "context", pools, extra) as stack:
            work = Work(stack, replica)
            until(
                lambda: work.send("repaired", SYSTEM, USER).headers.get("x-homing-repairs") is not None,
                what="the record",
            )
            until(lambda: work.send("engine", SYSTEM, USER).status_code == 200, what="the engine's record")
            yield work


def test_a_repaired_conversation_arrives_whole_and_the_answer_says_so(work: Work) -> None:
    answer = work.send("repaired", SYSTEM, USER, temperature=0.5)
    assert answer.headers["x-homing-repairs"] == "fold_system"
    assert work.arrived == {"model": "repaired", "messages": [FOLDED], "temperature": 0.5}
    assert work.stack.metric("homing_repairs_total", pool="repaired", repair="fold_system") >= 1


def test_what_needs_nothing_arrives_byte_for_byte(work: Work) -> None:
    body = b'{ "messages" : [ {"role":"user", "content":"caf\\u00e9"} ],\n "model":"repaired" }'
    headers = {"content-type": "application/json", "x-session-id": "s"}
    answer = httpx.post(f"{work.stack.url}/v1/chat/completions", content=body, headers=headers, trust_env=False)
    assert "x-homing-repairs" not in answer.headers
    assert work.echo.bodies[-1] == body


def test_the_template_refuses_what_it_takes_once_it_is_repaired(work: Work) -> None:
    turns = (SYSTEM, USER, USER, ANSWER, {**SYSTEM, "role": "developer"}, USER)
    through = work.send("engine", *turns, max_tokens=2)
    assert through.status_code == 200
    assert through.headers["x-homing-repairs"] == "developer,fold_system,merge_turns"
    replica = f"http://127.0.0.1:{work.stack.replica_ports['engine-0']}/v1/chat/completions"
    body = {"model": "engine", "messages": turns, "max_tokens": 2}
    assert httpx.post(replica, json=body, trust_env=False).json()["error"]["message"] == "System role not supported"


def test_the_engines_own_error_comes_through_where_nothing_can_be_done(work: Work) -> None:
    replica = f"http://127.0.0.1:{work.stack.replica_ports['engine-0']}/v1/chat/completions"
    for messages in ("hello", [{"role": 5}], [{"content": "x"}]):
        body = {"model": "engine", "messages": messages}
        direct = httpx.post(replica, json=body, trust_env=False)
        through = httpx.post(f"{work.stack.url}/v1/chat/completions", json=body, trust_env=False)
        assert (through.status_code, through.json()) == (direct.status_code, direct.json())
        assert through.status_code == 400


def test_observe_says_what_it_would_have_done_and_does_nothing(work: Work) -> None:
    answer = work.send("observed", SYSTEM, USER)
    assert answer.headers["x-homing-repairs"] == "observed:fold_system"
    assert work.arrived["messages"] == [SYSTEM, USER]
    assert work.stack.metric("homing_repairs_observed_total", pool="observed", repair="fold_system") >= 1
    assert work.stack.metric("homing_repairs_total", pool="observed") == 0


def test_a_conversation_that_is_too_long_is_refused_before_an_engine_sees_it(work: Work) -> None:
    before = len(work.echo.bodies)
    answer = work.send("short", {"role": "user", "content": "x" * 1000})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("BadRequestError", 400)
    assert "at least 25 too many" in error["message"]
    assert len(work.echo.bodies) == before


def test_and_one_that_is_too_long_for_what_the_engines_say_they_take(work: Work) -> None:
    until(
        lambda: "at least 226 too many" in work.send("told", {"role": "user", "content": "x" * 10_000}).text,
        what="the engine's limit",
    )
    assert work.send("told", USER, max_tokens=2).status_code == 200


def test_a_lost_system_text_is_put_back(work: Work) -> None:
    work.send("remembering", SYSTEM, USER, session="long")
    assert work.arrived["messages"] == [SYSTEM, USER]
    answer = work.send("remembering", USER, ANSWER, USER, session="long")
    assert answer.headers["x-homing-repairs"] == "restore_system"
    assert work.arrived["messages"] == [SYSTEM, USER, ANSWER, USER]


def test_a_session_goes_on_with_its_own_model_and_others_with_the_default(work: Work) -> None:
    for session, model in (("held", "repaired"), ("free", "auto")):
        assert work.send(model, USER, session=session).status_code == 200
    for session, model in (("held", "repaired"), ("free", "remembering")):
        work.send("auto", SYSTEM, USER, session=session)
        assert work.arrived["model"] == model
    # in the middle of the body, where only the whole parse finds it
    body = json.dumps({"messages": [USER], "model": "auto", "n": 1}).encode()
    for session, model in (("held", "repaired"), ("free", "remembering")):
        headers = {"content-type": "application/json", "x-session-id": session, "x-tenant": "acme"}
        httpx.post(f"{work.stack.url}/v1/chat/completions", content=body, headers=headers, trust_env=False)
        assert work.arrived["model"] == model


def test_tenants_are_apart_and_their_pool_fails_closed_while_others_go_on(work: Work) -> None:
    salts = []
    for tenant in ("acme", "acme", "other"):
        work.send("apart", USER, tenant=tenant, cache_salt="mine")
        salts.append(work.arrived["cache_salt"])
    assert salts[0] == salts[1] != salts[2]
    stack = work.stack
    for picker in stack.picker_http:
        stack.processes.signal(picker, signal.SIGKILL)
    before = len(work.echo.bodies)
    closed = work.send("apart", USER)
    assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
    assert closed.json()["error"]["type"] == "ServiceUnavailable"
    assert len(work.echo.bodies) == before
    assert work.send("repaired", USER).status_code == 200
    for picker in stack.picker_http:
        stack.processes.kill(picker)
        stack.start_picker(picker)
    until(lambda: stack.pickers_in_service() == len(stack.picker_http), what="the pickers to be back")
    until(lambda: work.send("apart", USER).status_code == 200, what="the pickers to be asked again")
    for pool in ("repaired", "engine"):
        until(lambda pool=pool: "x-homing-repairs" in work.send(pool, SYSTEM, USER).headers, what="their records")


def looked_at(work: Work, pool: str) -> tuple[float, float]:
    """Prompts that were whole, and that were not, by both pickers: Envoy may have gone over to the standby."""

    def total(name: str) -> float:
        metric = f"homing_context_{name}_total"
        return sum(work.stack.metric(metric, picker, pool=pool) for picker in work.stack.picker_http)

    return total("complete"), total("incomplete")


def test_the_prompt_of_every_repaired_request_is_looked_at_after_its_end(work: Work) -> None:
    def repaired() -> bool:  # not while the pickers that were frozen above come back
        return work.send("engine", SYSTEM, USER).headers.get("x-homing-repairs") == "fold_system"

    before, _ = looked_at(work, "engine")
    until(repaired, what="a repair")
    until(lambda: looked_at(work, "engine")[0] > before, what="the proof")
    assert looked_at(work, "engine")[1] == 0


def test_a_text_that_the_template_loses_is_told(work: Work) -> None:
    """Nothing is repaired there, as the file says."""

    def found() -> bool:
        work.send("losing", SYSTEM, {"role": "system", "content": "The last one stays."}, USER)
        return looked_at(work, "losing")[1] > 0

    until(found, what="the loss")
    assert looked_at(work, "losing")[0] == 0


def test_a_template_that_only_the_engine_has_is_asked_of_the_engine(work: Work) -> None:
    def found() -> bool:
        work.send("asked", SYSTEM, {"role": "developer", "content": "Be brief."}, USER)
        return looked_at(work, "asked")[0] > 0

    until(found, what="the proof")
    assert looked_at(work, "asked")[1] == 0


def test_a_picker_that_takes_over_knows_what_the_session_had_said(short_directory: Path) -> None:
    secret = short_directory / "secret"
    secret.write_text("a secret of the pickers' own")
    redis = RedisServer(short_directory / "redis").start()
    try:
        with echo() as replica:
            settings: dict[str, object] = {"template": {"source": "none"}, "repair": {"lost_system": "restore"}}
            pool = SimulatedPool("only", "only", 1, ports=(replica.port,), settings=settings)
            extra: dict[str, object] = {"sessions": {"pins": redis.url, "secret": f"file:{secret}"}}
            with static_stack(short_directory / "takeover", (pool,), extra) as stack:
                work = Work(stack, replica)
                work.send("only", SYSTEM, USER)
                until(lambda: ":said:" in redis.command("KEYS", "*:said:*"), what="the text in Redis")
                stack.processes.kill("picker")
                until(lambda: stack.pickers_in_service() == 1, what="Envoy to know")

                # an answer of Redis that takes more than 5 ms counts from the next turn on
                def restored() -> bool:
                    return work.send("only", USER, ANSWER, USER).headers.get("x-homing-repairs") == "restore_system"

                until(restored, what="the text to be back")
                assert work.arrived["messages"] == [SYSTEM, USER, ANSWER, USER]
                assert stack.metric("homing_system_texts_read_total", "standby") == 1
    finally:
        redis.kill()
