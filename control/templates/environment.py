"""A chat template, compiled and rendered as transformers does it. Runs code that a model's publisher wrote: only in
the worker's process, which has limits of time and memory.

Source: transformers, utils/chat_template_utils.py (`_compile_jinja_template`): the immutable sandbox, `trim_blocks`,
`lstrip_blocks`, loop controls, the tag `generation`, `tojson` that does not escape for HTML, `raise_exception` and
`strftime_now`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NoReturn

import jinja2
from jinja2.ext import Extension, LoopControlExtension
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from homing.core.template.prepared import Takes, prepared
from homing.core.template.probe import RefusedError
from homing.core.template.sentinels import Message, parts, user
from homing.core.template.source import MAX_TEMPLATE_CHARS, ChatTemplate

MAX_PROMPT_CHARS = 16_000_000


class Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks the answer's tokens for training; its body is rendered as is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own form)

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class Template:
    """Compiled. Raises RefusedError for a text that is no template."""

    def __init__(self, source: ChatTemplate, now: Callable[[], datetime] = datetime.now) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._names: dict[str, object] = dict(source.special_tokens)
        self._plain = _compiled(environment, source.text)
        self._tool_use = self._plain if source.tool_use is None else _compiled(environment, source.tool_use)
        self._takes = self._what_it_shows()

    def render(self, messages: Sequence[Message], tools: Sequence[object] | None = None) -> str:
        """The prompt, with what the answer begins with. Raises RefusedError with the template's words."""
        return self._rendered(prepared(messages, self._takes), tools)

    def _rendered(self, messages: list[dict[str, object]], tools: Sequence[object] | None) -> str:
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True}
        template = self._tool_use if tools else self._plain
        chunks, size = [], 0
        try:
            for chunk in template.generate(self._names | given):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_PROMPT_CHARS:
                    raise RefusedError(f"a prompt of more than {MAX_PROMPT_CHARS} characters")
        except RefusedError:
            raise
        except Exception as error:  # a template runs what it likes, and may fail in every way
            raise RefusedError(_words(error)) from None
        return "".join(chunks)

    def _what_it_shows(self) -> Takes:
        """To a template that shows no lists an engine gives joined texts; to one that shows only lists, lists."""
        first, second = "firstpart", "secondpart"
        text, listed = self._tried(first), self._tried(parts((first, second)))
        if first in listed and second in listed and "'type'" not in listed and '"type"' not in listed:
            return Takes.BOTH if first in text else Takes.LISTS
        return Takes.TEXT

    def _tried(self, content: object) -> str:
        try:
            return self._rendered([dict(user(content))], None)
        except RefusedError:
            return ""


def _compiled(environment: jinja2.Environment, text: str) -> jinja2.Template:
    if len(text) > MAX_TEMPLATE_CHARS:
        raise RefusedError(f"a template of more than {MAX_TEMPLATE_CHARS} characters")
    try:
        return environment.from_string(text)
    except Exception as error:  # syntax, but also what the optimizer met when it evaluated constants
        raise RefusedError(f"not a template: {_words(error)}") from None


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:500]
