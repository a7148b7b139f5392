"""Hostile templates in the real worker: refused in bounded time, with a reason, and the next job is served."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from published_templates import published

from homing.control.templates.renderer import Renderer, WorkerLostError
from homing.core.template.probe import RefusedError
from homing.core.template.source import ChatTemplate

LIMIT_S = 0.3
HELLO = [{"role": "user", "content": "hello"}]
GOOD = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SECRET = "HOMING_TEST_SECRET"

OVERRUNS = {
    "loops": LOOPS,
    "arithmetic in C": "{{ 9 ** (9 ** 9) }}",
    "arithmetic of the conversation": "{{ (9 + messages | length) ** (9 ** 9) }}",
}
REFUSED = {
    "recursion": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "an import": ("{% import 'os' as os %}{{ os }}", "no loader"),
    "a global of Python's": ("{{ open('/etc/passwd') }}", "undefined"),
    "the way round through classes": ("{{ ().__class__.__base__.__subclasses__() }}", "unsafe|undefined"),
    "changing what it was given": ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    "an explosion of text": ("{{ 'x' * 99999999999 }}", "MemoryError|memory|OverflowError|cannot fit"),
    "an explosion of text by doubling": (
        "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}",
        "MemoryError|memory|took more than",
    ),
    "output without end": ("{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "more than 16000000 characters"),
    "a range that is too wide": ("{% for i in range(9999999) %}{% endfor %}", "Range too big"),
    "no template": ("{% if %}", "not a template"),
    "too long to be one": (" " * 1_000_001, "more than 1000000 characters"),
    "words of its own": ("{{ raise_exception('Conversation roles must alternate') }}", "^Conversation roles must"),
}  # fmt: skip


@pytest.fixture
async def renderer():
    async with Renderer(LIMIT_S) as made:
        yield made


async def test_renders_and_probes(renderer: Renderer):
    assert await renderer.render(GOOD, HELLO) == "[user]hello"
    record = await renderer.probe(ChatTemplate(published("trl", "qwen2_5")), b"seed", ())
    assert (record.default_system, record.stable) == (True, True)


@pytest.mark.parametrize("name", OVERRUNS)
async def test_a_template_that_takes_too_long_ends_the_worker_and_nothing_else(renderer: Renderer, name: str):
    await renderer.render(GOOD, HELLO)
    with pytest.raises(WorkerLostError, match=r"took more than 0\.3 s to render"):
        await renderer.render(ChatTemplate(OVERRUNS[name]), HELLO)
    assert await renderer.render(GOOD, HELLO) == "[user]hello"
    assert renderer.lost == 1


@pytest.mark.parametrize("name", REFUSED)
async def test_a_template_that_wants_too_much_is_refused_with_a_reason(renderer: Renderer, name: str):
    text, reason = REFUSED[name]
    with pytest.raises((RefusedError, WorkerLostError), match=f"(?i){reason}|took too much memory"):
        await renderer.render(ChatTemplate(text), HELLO)
    assert await renderer.render(GOOD, HELLO) == "[user]hello"


async def test_a_template_that_loops_in_its_probe_is_refused(renderer: Renderer):
    with pytest.raises(WorkerLostError):
        await renderer.probe(ChatTemplate(LOOPS), b"seed", ())


async def test_the_loop_goes_on_while_a_template_does_not_end(renderer: Renderer):
    await renderer.render(GOOD, HELLO)
    task = asyncio.create_task(renderer.render(ChatTemplate(LOOPS), HELLO))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns >= 10
    with pytest.raises(WorkerLostError):
        task.result()


async def test_jobs_are_done_one_after_the_other(renderer: Renderer):
    jobs = [renderer.render(GOOD, [{"role": "user", "content": str(n)}]) for n in range(20)]
    assert await asyncio.gather(*jobs) == [f"[user]{n}" for n in range(20)]


async def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(renderer: Renderer):
    await renderer.render(GOOD, HELLO)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0001):
                await renderer.render(GOOD, [{"role": "user", "content": "lost"}])
        assert await renderer.render(GOOD, HELLO) == "[user]hello"


async def test_a_job_that_is_too_long_is_not_begun(renderer: Renderer):
    with pytest.raises(RefusedError, match="more than 16777216 bytes to render"):
        await renderer.render(GOOD, [{"role": "user", "content": "x" * (17 << 20)}])


async def test_the_worker_has_no_secrets_and_ends_with_the_renderer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SECRET, "s")
    async with Renderer(LIMIT_S) as renderer:
        await renderer.render(GOOD, HELLO)
        assert renderer._process is not None
        pid = renderer._process.pid
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: ASYNC230
            assert SECRET.encode() not in environment.read()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_worker_whose_starter_is_gone_ends_even_in_a_loop():
    renderer = Renderer(LIMIT_S)
    await renderer.render(GOOD, HELLO)
    assert renderer._process is not None
    process, stdin = renderer._process, renderer._process.stdin
    job = asyncio.create_task(renderer.render(ChatTemplate(LOOPS), HELLO))
    await asyncio.sleep(0.05)
    assert stdin is not None
    stdin.close()
    with pytest.raises(WorkerLostError):
        await job
    assert process.returncode == -signal.SIGPROF
