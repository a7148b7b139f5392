"""Prompts for proofs: from a text that control tells or that was found here, else from the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from homing.control.templates.api import template_routes
from homing.control.templates.finding import Found
from homing.control.templates.prober import Progress, Target
from homing.core.config import parse
from homing.core.config.secret import SecretRef
from homing.core.context.proof import Case
from homing.core.fleet import Pool, Replica
from homing.core.template.probe import RefusedError
from homing.core.template.record import Capabilities
from homing.core.template.source import ChatTemplate
from homing.ext_proc.prompts import TemplatePrompts
from homing.ext_proc.proof import UnprovableError

TEXT = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
LOOPS = ChatTemplate("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
CASE = Case(("Be kind.",), [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}], None)
CONFIG = parse("pools: {p: {replicas: [{id: r, address: '10.0.0.1:1'}]}}", "f").pools[0]


def pool(text: ChatTemplate | None) -> Pool:
    replicas = (Replica("sick", "10.0.0.9:1", healthy=False), Replica("r", "10.0.0.1:1"))
    return Pool("p", "m", (), "ring", replicas, Capabilities(), text.digest if text else "")


class Elsewhere:
    """Control, and an engine, behind one client."""

    def __init__(self, prompts: TemplatePrompts) -> None:
        self.known: dict[str, Progress] = {}
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        control = FastAPI()
        control.include_router(template_routes(self.known))
        self._control = httpx.ASGITransport(app=control)
        self.engine_status = 200
        transport = httpx.MockTransport(self._answer)
        prompts._client, prompts._telling = (httpx.AsyncClient(transport=transport) for _ in range(2))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("authorization"))
        self.asked.append(f"{request.url.host}{request.url.path}")
        if request.url.host == "control":
            answer = await self._control.handle_async_request(request)
            return httpx.Response(answer.status_code, content=await answer.aread())
        return httpx.Response(self.engine_status, json={"tokens": [1], "prompt": "Be kind. hi", "message": "no"})


@pytest.fixture
async def prompts() -> AsyncIterator[TemplatePrompts]:
    async with TemplatePrompts("http://control/", Path("f"), lambda: 0.0) as made:
        yield made


def found(text: ChatTemplate) -> Progress:
    return Progress(Target.of(CONFIG), Found(Capabilities(), text))


async def why(prompts: TemplatePrompts, of: Pool) -> str:
    with pytest.raises(UnprovableError) as caught:
        await prompts.prompt(of, CASE, None)
    return caught.value.reason


async def test_the_text_is_asked_of_control_once(prompts: TemplatePrompts):
    elsewhere = Elsewhere(prompts)
    elsewhere.known["p"] = found(TEXT)
    assert [await prompts.prompt(pool(TEXT), CASE, None) for _ in range(2)] == ["<system>Be kind.<user>hi"] * 2
    assert elsewhere.asked == ["control/api/templates/p"]


async def test_another_text_than_the_pools_is_not_used(prompts: TemplatePrompts):
    elsewhere = Elsewhere(prompts)
    assert await why(prompts, pool(TEXT)) == "template"  # 404
    elsewhere.known["p"] = found(ChatTemplate("older"))
    assert await why(prompts, pool(TEXT)) == "template"
    elsewhere.known["p"] = found(TEXT)
    assert await prompts.prompt(pool(TEXT), CASE, None) == "<system>Be kind.<user>hi"


async def test_without_control_it_is_the_text_that_was_found_here():
    async with TemplatePrompts(None, Path("f"), lambda: 0.0) as prompts:
        assert await why(prompts, pool(TEXT)) == "template"
        prompts.found = {"p": found(TEXT)}
        assert await prompts.prompt(pool(TEXT), CASE, None) == "<system>Be kind.<user>hi"


async def test_what_the_template_says_no_to_is_refused(prompts: TemplatePrompts):
    text = ChatTemplate("{{ raise_exception('no') }}")
    prompts.found = {"p": found(text)}
    with pytest.raises(RefusedError, match=r"^no$"):
        await prompts.prompt(pool(text), CASE, None)


async def test_a_template_that_does_not_end_is_given_up(prompts: TemplatePrompts):
    prompts.found = {"p": found(LOOPS)}
    assert await why(prompts, pool(LOOPS)) == "worker"


async def test_an_engine_is_asked_once_a_second_at_the_most():
    now = [100.0]
    async with TemplatePrompts(None, Path("f"), lambda: now[0]) as prompts:
        elsewhere = Elsewhere(prompts)
        assert await prompts.prompt(pool(None), CASE, None) == "Be kind. hi"
        now[0] += 0.9
        assert await why(prompts, pool(None)) == "rate"
        now[0] += 0.1
        elsewhere.engine_status = 500
        assert await why(prompts, pool(None)) == "engine"
        assert elsewhere.asked == ["10.0.0.1/tokenize", "10.0.0.1/detokenize", "10.0.0.1/tokenize"]


async def test_an_engine_is_asked_with_its_key(tmp_path: Path):
    async with TemplatePrompts(None, tmp_path / "homing.yaml", lambda: 0.0) as prompts:
        elsewhere = Elsewhere(prompts)
        with pytest.raises(UnprovableError):
            await prompts.prompt(pool(None), CASE, SecretRef("file", "key"))
        (tmp_path / "key").write_text("sk-1")
        prompts._asked_s = -1.0
        await prompts.prompt(pool(None), CASE, SecretRef("file", "key"))
        assert elsewhere.keys == ["Bearer sk-1"] * 2


async def test_nothing_is_known_of_a_pool_without_a_record_or_a_replica(prompts: TemplatePrompts):
    assert await why(prompts, Pool("p", "m")) == "template"
    assert await why(prompts, Pool("p", "m", template=Capabilities())) == "engine"
