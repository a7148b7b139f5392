"""What templates find there, as transformers gives it to them; and the dates that are looked for."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from homing.control.templates.dates import spellings
from homing.control.templates.environment import Template
from homing.core.template.probe import RefusedError
from homing.core.template.source import ChatTemplate

HELLO = [{"role": "user", "content": "hello"}]
NOON = datetime(2026, 3, 5, 12)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("{% for m in messages %}\n{{ m.content }}\n{% endfor %}", "hello\n"),  # blocks leave no line behind
        ("  {% if true %}x{% endif %}", "x"),  # nor blanks before them
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "hello"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{{ strftime_now('%d %b %Y') }}", "05 Mar 2026"),
        ("{{ bos_token }}|{{ eos_token }}|{{ nothing }}", "<s>|</s>|"),
        ("{{ add_generation_prompt }} {{ tools is none }} {{ documents is none }}", "True True True"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
    ],
)
def test_a_prompt(text: str, prompt: str):
    assert Template(ChatTemplate(text), lambda: NOON).render(HELLO) == prompt


def test_the_text_for_tools_is_for_requests_with_tools():
    template = Template(ChatTemplate("plain", "with {{ tools | length }}"))
    assert [template.render(HELLO), template.render(HELLO, [{}, {}])] == ["plain", "with 2"]


def test_the_messages_that_are_given_stay_as_they_are():
    given = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]
    Template(ChatTemplate("{{ messages }}")).render(given)
    assert given[0] == {
        "role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]
    }  # fmt: skip


def test_a_template_that_fails_in_its_own_way_is_refused():
    with pytest.raises(RefusedError, match="division"):
        Template(ChatTemplate("{{ 1 // (messages | length - 1) }}")).render(HELLO)


def test_today_is_looked_for_as_templates_write_it_and_a_day_either_way():
    found = spellings(date(2026, 3, 1))
    assert {"2026-03-01", "01 Mar 2026", "1 March 2026", "Mar 1, 2026", "March 01, 2026", "03/01/2026"} <= set(found)
    assert {"2026-02-28", "28 Feb 2026", "2026-03-02"} <= set(found)
    assert "2026-03-03" not in found
