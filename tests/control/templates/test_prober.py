"""Templates found in the background, told to the fleet, and found again."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest
from published_templates import published

from homing.control.membership import Membership
from homing.control.templates import finding, prober
from homing.control.templates.engine import Engine, EngineError
from homing.control.templates.finding import Finder
from homing.control.templates.prober import TemplateProber
from homing.control.templates.renderer import Renderer
from homing.core.config import parse
from homing.core.fleet import HealthChanged
from homing.core.template.record import Capabilities, Fate
from homing.core.template.source import ChatTemplate

QWEN = published("trl", "qwen2_5")
GEMMA = published("trl", "gemma")
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "POLL_S", 0.02)
    monkeypatch.setattr(prober, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(finding, "Renderer", lambda: Renderer(0.3))


@pytest.fixture
async def follow(fast, tmp_path: Path, background, until):
    """Follows the templates of a file's text; gives the membership and the prober."""
    finders = []

    async def start(text: str) -> tuple[Membership, TemplateProber]:
        membership = Membership(parse(text, "homing.yaml"))
        finders.append(Finder(tmp_path / "homing.yaml", Random(1)))
        made = TemplateProber(membership, finders[-1], Random(1))
        background(made.run())
        await until(lambda: made.progress)
        return membership, made

    yield start
    for finder in finders:
        await finder.__aexit__()


def config(template: str, *addresses: str, pool: str = "p") -> str:
    replicas = ", ".join(f"{{id: r{i}, address: '{a}'}}" for i, a in enumerate(addresses or ("127.0.0.1:9",)))
    return f"pools: {{{pool}: {{served_name: m, template: {template}, replicas: [{replicas}]}}}}"


def of(membership: Membership) -> tuple[Capabilities | None, str]:
    pool = membership.view.fleet.pools[0]
    return pool.template, pool.template_digest


async def test_a_file_is_probed_and_again_when_it_changes(follow, tmp_path: Path, until):
    path = tmp_path / "t.jinja"
    path.write_text(QWEN)
    membership, made = await follow(config("{file: t.jinja}"))
    await until(lambda: of(membership)[0])
    assert of(membership) == (Capabilities(developer=Fate.DROPPED, default_system=True), ChatTemplate(QWEN).digest)
    path.write_text(GEMMA)
    await until(lambda: of(membership)[1] == ChatTemplate(GEMMA).digest)
    assert of(membership)[0].system is Fate.REFUSED
    assert made.progress["p"].found.text == ChatTemplate(GEMMA)


@pytest.mark.parametrize("text", ["{{ nothing }}", "{% if %}", LOOPS])
async def test_a_file_that_turns_bad_leaves_the_last_record_and_one_line(
    follow, tmp_path: Path, until, caplog, text: str
):
    path = tmp_path / "t.jinja"
    path.write_text(QWEN)
    membership, made = await follow(config("{file: t.jinja}"))
    await until(lambda: of(membership)[0])
    known = of(membership)
    path.write_text(text)
    await until(lambda: made.progress["p"].tries >= 3, 20)
    assert of(membership) == known
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        f"pool p: no chat template from file t.jinja ({made.progress['p'].trouble}): the last one stays"
    ]
    path.write_text(GEMMA)
    await until(lambda: of(membership) != known)


async def test_a_file_that_is_not_there_is_tried_again(follow, tmp_path: Path, until, caplog):
    membership, made = await follow(config("{directory: model}"))
    await until(lambda: made.progress["p"].tries >= 3)
    assert of(membership) == (None, "")
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        f"pool p: no chat template from directory model ({tmp_path}/model: no such directory): nothing is repaired"
    ]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "chat_template.jinja").write_text(QWEN)
    await until(lambda: of(membership)[0])
    assert made.progress["p"].trouble == ""


async def test_another_file_in_the_configuration_takes_the_old_record_away(follow, tmp_path: Path, until):
    (tmp_path / "t.jinja").write_text(QWEN)
    membership, made = await follow(config("{file: t.jinja}"))
    await until(lambda: of(membership)[0])
    membership.configure(parse(config("{file: gone.jinja}"), "homing.yaml"))
    await until(lambda: of(membership) == (None, ""))
    membership.configure(parse(config("{file: t.jinja}"), "homing.yaml"))
    await until(lambda: of(membership)[0])
    membership.configure(parse(config("{source: none}"), "homing.yaml"))
    await until(lambda: of(membership) == (None, ""))
    membership.configure(parse(config("{source: none}", pool="q"), "homing.yaml"))
    await until(lambda: list(made.progress) == ["q"])


async def test_an_engine_is_asked_once_a_replica_serves_and_again_when_one_comes_back(follow, start_engine, until):
    old, new = await start_engine(QWEN), await start_engine(GEMMA)
    membership, made = await follow(config("{source: engine}", old, new))
    assert made.progress["p"].tries == 0
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: of(membership)[0])
    assert of(membership) == (Capabilities(default_system=True), "")
    membership.apply(HealthChanged("p", "r1", True))
    await until(lambda: of(membership)[0].system is Fate.REFUSED)
    assert made.progress["p"].tries == 2
    membership.apply(HealthChanged("p", "r0", False))
    await asyncio.sleep(0.01)
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: made.progress["p"].tries == 3)


async def test_an_engine_that_knows_no_templates_leaves_the_pool_as_it_is(follow, replicas, until, caplog):
    membership, made = await follow(config("{source: engine}", replicas[0].address))
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: made.progress["p"].tries >= 3)
    assert of(membership) == (None, "")
    (line,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert line.startswith("pool p: no chat template from engine (not an answer of vLLM's: ")
    assert line.endswith("): nothing is repaired")


async def test_an_engine_is_asked_with_its_key_and_a_key_that_cannot_be_had_is_trouble(
    follow, tmp_path: Path, until, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    class Keyed(Engine):
        async def _post(self, path: str, body: object) -> bytes:
            asked.append(self._headers["authorization"])
            raise EngineError("enough")

    monkeypatch.setattr(finding, "Engine", Keyed)
    text = config("{source: engine}").replace("template:", "engine: {api_key: file:key}, template:")
    membership, made = await follow(text)
    membership.apply(HealthChanged("p", "r0", True))
    await until(lambda: made.progress["p"].trouble == "file:key: no such file or directory")
    (tmp_path / "key").write_text("sk-1\n")
    await until(lambda: made.progress["p"].trouble == "enough")
    assert asked[0] == "Bearer sk-1"
