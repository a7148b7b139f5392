"""What a real engine's chat template does is found out through the engine, and what it would lose arrives."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from e2e.stack import until
from real_vllm.engines import MODEL, Engine
from real_vllm.gateway import POOL, Gateway, Messages

from homing.control.templates.api import fields
from homing.control.templates.renderer import Renderer
from homing.core.template.record import Fate
from homing.core.template.source import ChatTemplate

pytestmark = pytest.mark.vllm

FIRST, SECOND, LATER = (f"Rule {n}: say {word} in every answer." for n, word in enumerate(("ash", "oak", "elm"), 1))
CONVERSATION = (
    {"role": "system", "content": FIRST},
    {"role": "system", "content": SECOND},
    {"role": "user", "content": "Which trees grow by the river?"},
    {"role": "assistant", "content": "Willows."},
    {"role": "system", "content": LATER},
    {"role": "user", "content": "And on the hill?"},
)


class Prompted(msgspec.Struct):
    """An answer of a request with `return_token_ids`."""

    prompt_token_ids: list[int]


class Detokenized(msgspec.Struct):
    prompt: str


def text(engine: Engine, tokens: list[int]) -> str:
    answer = engine.http.post("/detokenize", json={"model": MODEL, "tokens": tokens}).raise_for_status()
    return msgspec.json.decode(answer.content, type=Detokenized).prompt


def prompt_of(homing: Gateway, fleet: dict[str, Engine], messages: Messages) -> tuple[str, str]:
    """What the model was given, as the engine that served tells, and what was repaired."""
    answer = homing.chat(messages, return_token_ids=True)
    tokens = msgspec.json.decode(answer.content, type=Prompted).prompt_token_ids
    return text(fleet[answer.headers["x-homing-replica"]], tokens), answer.headers.get("x-homing-repairs", "")


async def test_the_record_by_asking_the_engine_is_that_of_the_templates_text(homing: Gateway, template: str) -> None:
    """But for `developer`: vLLM makes it system, which the text does not tell."""

    def known() -> object:
        return next(each for each in homing.api_json("/api/templates") if each["pool"] == POOL)["record"]

    await asyncio.to_thread(until, lambda: known() is not None, 30, "the record")
    renderer = Renderer()
    try:
        by_text = await renderer.probe(ChatTemplate(template), b"seed", ())
    finally:
        await renderer.end()
    assert (by_text.systems, by_text.later_system, by_text.developer) == (Fate.LAST_ONLY, Fate.LAST_ONLY, Fate.DROPPED)
    assert known() == fields(msgspec.structs.replace(by_text, developer=Fate.KEPT))


def test_the_engine_loses_all_system_texts_but_the_last(fleet: dict[str, Engine]) -> None:
    shown = text(fleet["a"], fleet["a"].tokens(CONVERSATION))
    assert [rule in shown for rule in (FIRST, SECOND, LATER)] == [False, False, True]


def test_through_the_gateway_every_one_of_them_is_in_the_prompt(homing: Gateway, fleet: dict[str, Engine]) -> None:
    shown, repairs = prompt_of(homing, fleet, CONVERSATION)
    assert repairs == "merge_system,later_system"
    assert [shown.count(rule) for rule in (FIRST, SECOND, LATER)] == [1, 1, 1]


def test_a_repaired_turn_begins_with_the_one_before_it(homing: Gateway, fleet: dict[str, Engine]) -> None:
    earlier, _ = prompt_of(homing, fleet, CONVERSATION[:3])
    later, _ = prompt_of(homing, fleet, CONVERSATION)
    assert later.startswith(earlier.removesuffix("<think>\n"))


def test_the_picker_has_seen_them_all_in_the_engines_prompts(homing: Gateway, fleet: dict[str, Engine]) -> None:
    before = homing.metric("homing_context_complete_total", pool=POOL)

    def proved() -> bool:  # the engine is asked once a second at the most
        prompt_of(homing, fleet, CONVERSATION)
        return homing.metric("homing_context_complete_total", pool=POOL) > before

    until(proved, what="a proof")
    assert homing.metric("homing_context_incomplete_total", pool=POOL) == 0
