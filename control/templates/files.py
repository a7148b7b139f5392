"""A chat template from files: one Jinja file, or a model's directory as published.

Source: transformers' tokenization_utils_base (`chat_template.jinja` rules over `tokenizer_config.json`; a list there
has several by name, of which `tool_use` is for requests with tools).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from homing.core.template.source import MAX_TEMPLATE_CHARS, ChatTemplate

MAX_FILE_BYTES = 8 << 20
JINJA = "chat_template.jinja"
NAMED = "additional_chat_templates"
CONFIG = "tokenizer_config.json"
PROCESSOR = "chat_template.json"

Signature = tuple[tuple[int, int, int] | None, ...]


class SourceError(Exception):
    """There is no template to be had. Says why, in words."""


class _Named(msgspec.Struct):
    name: str
    template: str


class _Token(msgspec.Struct):
    content: str


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[_Named] | None = None
    bos_token: str | _Token | None = None
    eos_token: str | _Token | None = None
    pad_token: str | _Token | None = None
    unk_token: str | _Token | None = None

    @property
    def special_tokens(self) -> tuple[tuple[str, str], ...]:
        def given() -> Iterator[tuple[str, str]]:
            for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
                token = getattr(self, name)
                if token is not None:
                    yield name, token if isinstance(token, str) else token.content

        return tuple(given())


def from_file(path: Path) -> ChatTemplate:
    """Raises SourceError."""
    return ChatTemplate(_template(path))


def from_directory(path: Path) -> ChatTemplate:
    """Raises SourceError."""
    if not path.is_dir():
        raise SourceError(f"{path}: no such directory")
    config = _parsed(path / CONFIG) if (path / CONFIG).exists() else _TokenizerConfig()
    tokens = config.special_tokens
    if (path / JINJA).exists():
        tool_use = path / NAMED / "tool_use.jinja"
        return ChatTemplate(_template(path / JINJA), _template(tool_use) if tool_use.exists() else None, tokens)
    given = config.chat_template
    if given is None and (path / PROCESSOR).exists():
        given = _parsed(path / PROCESSOR).chat_template
    if given is None:
        raise SourceError(f"{path}: neither {JINJA} nor a chat_template in {CONFIG}")
    if isinstance(given, str):
        return ChatTemplate(given, None, tokens)
    named = {one.name: one.template for one in given}
    if "default" not in named:
        raise SourceError(f"{path / CONFIG}: the list of chat templates has none named default")
    return ChatTemplate(named["default"], named.get("tool_use"), tokens)


def signature(path: Path) -> Signature:
    """Differs after every change of the file, or of those in the directory that matter."""
    looked_at = (path, path / JINJA, path / NAMED / "tool_use.jinja", path / CONFIG, path / PROCESSOR)
    return tuple(map(_stat, looked_at))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _template(path: Path) -> str:
    try:
        text = _content(path).decode()
    except UnicodeDecodeError:
        raise SourceError(f"{path}: not UTF-8") from None
    if len(text) > MAX_TEMPLATE_CHARS:
        raise SourceError(f"{path}: more than {MAX_TEMPLATE_CHARS} characters")
    return text


def _parsed(path: Path) -> _TokenizerConfig:
    try:
        return msgspec.json.decode(_content(path), type=_TokenizerConfig)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{path}: {error}") from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SourceError(f"{path}: {reason.lower()}") from None
    if len(content) > MAX_FILE_BYTES:
        raise SourceError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    return content
