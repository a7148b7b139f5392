"""Messages to prompt text by a Jinja chat template, in the sandbox and with the names that transformers gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import jinja2
from jinja2.ext import LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from homing.sim.conversations import Message
from homing.sim.errors import BadRequestError
from homing.sim.prepared_messages import prepared
from homing.sim.tokenizer import BOS

# ChatML, as Qwen and others have it.
DEFAULT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


_END_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
SPECIAL_TOKENS = {"bos_token": BOS, "eos_token": "<|im_end|>"}


@dataclass(frozen=True, slots=True)
class RenderOptions:
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, object]] | None = None
    template_kwargs: Mapping[str, object] | None = None


class ChatTemplate:
    """A compiled template. Raises jinja2.TemplateSyntaxError when it is none."""

    def __init__(self, source: str | None = None, special_tokens: Mapping[str, str] | None = None) -> None:
        """`special_tokens`: `bos_token` and the like, as the template's names; default, the sim's own."""
        self._special_tokens = dict(SPECIAL_TOKENS if special_tokens is None else special_tokens)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._source = DEFAULT_TEMPLATE if source is None else source
        self._template = environment.from_string(self._source)

    def render(self, messages: Sequence[Message], options: RenderOptions) -> str:
        """Raises BadRequestError with the template's own words, as vLLM does."""
        if options.continue_final_message and options.add_generation_prompt:
            raise BadRequestError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        if not messages:
            words = "Cannot apply chat template to an empty conversation. Provide at least one message."
            raise BadRequestError(words)
        conversation = prepared(messages, self._source)
        final = _mark_end(conversation[-1]) if options.continue_final_message else None
        try:
            text = self._template.render(
                messages=conversation,
                tools=options.tools,
                add_generation_prompt=options.add_generation_prompt,
                **(self._special_tokens | dict(options.template_kwargs or {})),
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise BadRequestError(str(error)) from None
        return text if final is None else _cut_at_mark(text, final)


def _mark_end(message: dict[str, object]) -> str:
    """Mark where the final message ends, as transformers does (utils/chat_template_utils.py), and give its text."""
    content = str(message["content"] or "")  # vLLM makes a missing text an empty one
    message["content"] = content + _END_MARK
    return content


def _cut_at_mark(text: str, final: str) -> str:
    """The prompt up to the end of the final message, so that the model goes on with it. A template that trims
    messages trims this one too."""
    at = text.rfind(_END_MARK.rstrip())
    if at < 0 or final.strip() not in text:
        raise BadRequestError(
            "continue_final_message is set but the final message does not appear in the chat after applying the chat "
            "template! This can happen if the chat template deletes portions of the final message. Please verify the "
            "chat template and final message in your chat to ensure they are compatible."
            f"Final message to continue: {final.strip()}\nRendered chat:\n{text}"
        )
    return text[:at] if text.startswith(_END_MARK, at) else text[:at].rstrip()


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
