"""Records of real templates as published with wheels, and of small ones that do one thing each.

The table of families is what was seen, also when a real vLLM (0.32, `/tokenize` with each of these templates) was
asked: the same records but for `developer`, which vLLM makes a system message where the template knows no such role.
A missing content is an empty one there: so DeepSeek's distills lose every call.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from published_templates import published

from homing.control.templates.environment import Template
from homing.core.template.probe import OpaqueError, RefusedError, probe
from homing.core.template.record import Capabilities, Fate, Think, ToolIds
from homing.core.template.source import ChatTemplate

TODAY = datetime(2026, 3, 5, 12)
DATES = ("05 Mar 2026", "2026-03-05")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NO_TOOLS = Capabilities(
    tool_calls=Fate.DROPPED, tool_calls_with_content=Fate.DROPPED, parallel_calls=Fate.DROPPED
)  # fmt: skip
NO_TOOL_ROLE = msgspec.structs.replace(NO_TOOLS, tool=Fate.REFUSED, parallel_calls=Fate.REFUSED)
STRICT = msgspec.structs.replace(
    NO_TOOL_ROLE, systems=Fate.REFUSED, later_system=Fate.REFUSED, developer=Fate.REFUSED, alternates=True,
    user_first=True,
)  # fmt: skip
QWEN_3_5 = Capabilities(
    systems=Fate.REFUSED, later_system=Fate.REFUSED, developer=Fate.REFUSED, trims=True, think=Think.STRIPPED,
    stable=False, stable_tools=False, stable_think=False,
)  # fmt: skip
LLAMA_3_1 = Capabilities(tool_calls_with_content=Fate.DROPPED, parallel_calls=Fate.REFUSED, trims=True)
PHI_3 = msgspec.structs.replace(NO_TOOLS, tool=Fate.DROPPED, developer=Fate.DROPPED)

FAMILIES = {
    ("trl", "qwen2_5"): Capabilities(developer=Fate.DROPPED, default_system=True),
    ("trl", "qwen3"): Capabilities(developer=Fate.DROPPED, think=Think.STRIPPED, stable_think=False),
    ("trl", "qwen3_instruct_2507"): Capabilities(developer=Fate.DROPPED),
    ("trl", "qwen3_5_think"): QWEN_3_5,
    ("trl", "qwen3_6"): QWEN_3_5,
    ("trl", "qwen3_vl"): Capabilities(
        systems=Fate.FIRST_ONLY, later_system=Fate.FIRST_ONLY, developer=Fate.DROPPED
    ),
    ("trl", "deepseek_r1_distill"): msgspec.structs.replace(
        NO_TOOLS, systems=Fate.LAST_ONLY, later_system=Fate.LAST_ONLY, developer=Fate.DROPPED, think=Think.STRIPPED,
        stable=False,
    ),
    ("trl", "deepseekv3"): Capabilities(
        later_system=Fate.MERGED, developer=Fate.DROPPED, tool_calls=Fate.REFUSED,
        tool_calls_with_content=Fate.REFUSED, parallel_calls=Fate.REFUSED, think=Think.STRIPPED, stable=False,
    ),
    ("trl", "llama3"): msgspec.structs.replace(NO_TOOLS, trims=True),
    ("trl", "llama3_1"): LLAMA_3_1,
    ("trl", "llama3_2"): msgspec.structs.replace(LLAMA_3_1, dated=True),
    ("axolotl", "llama4"): Capabilities(trims=True),
    ("axolotl", "mistral_v1"): msgspec.structs.replace(STRICT, system=Fate.MERGED),
    ("axolotl", "mistral_v2v3"): Capabilities(
        system=Fate.MOVES, systems=Fate.REFUSED, later_system=Fate.REFUSED, developer=Fate.REFUSED, alternates=True,
        user_first=True, tool_calls_with_content=Fate.DROPPED, tool_ids=ToolIds.NINE, trims=True, stable=False,
        stable_history=False, stable_tools=False, stable_think=False,
    ),
    ("trl", "gemma"): msgspec.structs.replace(STRICT, system=Fate.REFUSED, trims=True),
    ("trl", "gemma3"): msgspec.structs.replace(
        STRICT, system=Fate.MERGED, content_lists=Fate.FIRST_ONLY, trims=True
    ),
    ("trl", "gemma4_v3"): Capabilities(content_lists=Fate.DROPPED, trims=True),
    ("trl", "phi3"): PHI_3,
    ("trl", "phi3_5"): PHI_3,
    ("axolotl", "phi_4"): msgspec.structs.replace(
        PHI_3, systems=Fate.FIRST_ONLY, later_system=Fate.FIRST_ONLY, default_system=True
    ),
    ("trl", "glm4moe"): Capabilities(
        developer=Fate.DROPPED, trims=True, think=Think.REPLACED, stable_think=False
    ),
    ("trl", "gptoss"): Capabilities(
        systems=Fate.FIRST_ONLY, later_system=Fate.FIRST_ONLY, tool_calls_with_content=Fate.DROPPED,
        parallel_calls=Fate.FIRST_ONLY, dated=True, stable_think=False,
    ),
    ("trl", "cohere"): msgspec.structs.replace(STRICT, trims=True),
    ("trl", "nemotron_3_nano"): Capabilities(trims=True, think=Think.REPLACED, stable=False, stable_think=False),
    ("trl", "idefics3"): Capabilities(  # takes lists of parts only
        tool=Fate.DROPPED, tool_calls=Fate.REFUSED, tool_calls_with_content=Fate.REFUSED, parallel_calls=Fate.REFUSED
    ),
    ("axolotl", "falcon_h1"): msgspec.structs.replace(
        NO_TOOLS, systems=Fate.FIRST_ONLY, later_system=Fate.FIRST_ONLY
    ),
    ("axolotl", "jamba"): Capabilities(),
}  # fmt: skip


def record(text: str) -> Capabilities:
    return probe(Template(ChatTemplate(text), lambda: TODAY).render, b"seed", DATES)


@pytest.mark.parametrize(("wheel", "name"), FAMILIES, ids=lambda value: value)
def test_the_record_of_a_published_template(wheel: str, name: str):
    assert record(published(wheel, name)) == FAMILIES[wheel, name]


@pytest.mark.parametrize(
    ("what", "text", "expected"),
    [
        ("everything stays", CHATML, Capabilities()),
        (
            "systems are gathered at the front",
            "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
            + CHATML.replace("in messages", "in messages if m.role != 'system'"),
            Capabilities(later_system=Fate.MERGED),
        ),
        (
            "systems are put at the end",
            CHATML.replace("in messages", "in messages if m.role != 'system'").replace(
                "{% if add", "{% for m in messages if m.role == 'system' %}!{{ m.content }}\n{% endfor %}{% if add"
            ),
            Capabilities(
                system=Fate.MOVES, systems=Fate.MOVES, later_system=Fate.MOVES, stable=False, stable_history=False
            ),
        ),
        (
            "systems vanish",
            CHATML.replace("in messages", "in messages if m.role != 'system'"),
            Capabilities(system=Fate.DROPPED, systems=Fate.DROPPED, later_system=Fate.DROPPED),
        ),
        (
            "think blocks are refused",
            "{% for m in messages if '<think>' in m.content %}{{ raise_exception('no') }}{% endfor %}" + CHATML,
            Capabilities(think=Think.STRIPPED),
        ),
        ("the date in ISO form", "{{ strftime_now('%Y-%m-%d') }}" + CHATML, Capabilities(dated=True)),
        ("a block of the trainer's", "{% generation %}" + CHATML + "{% endgeneration %}", Capabilities()),
    ],
    ids=lambda value: value if isinstance(value, str) and "{" not in value else "",
)  # fmt: skip
def test_the_record_of_a_template_that_does_one_thing(what: str, text: str, expected: Capabilities):
    assert record(text) == expected


def test_the_same_template_has_the_same_record_whatever_the_markers_are():
    text = published("trl", "gptoss")
    render = Template(ChatTemplate(text), lambda: TODAY).render
    assert {probe(render, seed, DATES) for seed in (b"a", b"b", b"c")} == {FAMILIES["trl", "gptoss"]}


@pytest.mark.parametrize("text", ["", "{{ messages[0].content }}"])
def test_a_template_that_does_not_show_the_conversation_has_no_record(text: str):
    with pytest.raises(OpaqueError, match="does not show"):
        record(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ raise_exception('no') }}", "no"),
        ("{{ nothing.there }}", "'nothing' is undefined"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth exceeded"),
    ],
)
def test_one_that_refuses_every_conversation_is_told_with_its_words(text: str, words: str):
    with pytest.raises(OpaqueError, match=f"^the template refuses a plain conversation: {words}"):
        record(text)


def test_a_failure_that_is_not_the_templates_ends_the_probe():
    """An engine that is gone is no template that refuses."""

    def gone(messages: object, tools: object = None) -> str:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        probe(gone, b"seed")


def test_a_refusal_has_the_templates_words():
    with pytest.raises(RefusedError, match=r"^System role not supported$"):
        Template(ChatTemplate(published("trl", "gemma"))).render([{"role": "system", "content": "x"}])
