"""A real model's tokenizer, from its `tokenizer.json`, and what lies beside it: special tokens and chat template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import tokenizers

from homing.sim.tokenizer import TokenIds, token_ids

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


class NamedToken(msgspec.Struct):
    content: str


class ModelFiles(msgspec.Struct):
    """`tokenizer_config.json`, the part that a chat template needs."""

    bos_token: str | NamedToken | None = None
    eos_token: str | NamedToken | None = None
    chat_template: str | None = None

    @property
    def special_tokens(self) -> dict[str, str]:
        named = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return {k: v.content if isinstance(v, NamedToken) else v for k, v in named.items() if v is not None}


def read_model_files(path: Path) -> ModelFiles:
    """Of a model's directory; nothing of a lone `tokenizer.json`. A `chat_template.jinja` wins, as in transformers.
    Raises OSError and msgspec.DecodeError."""
    if not path.is_dir():
        return ModelFiles()
    config, template = path / "tokenizer_config.json", path / "chat_template.jinja"
    files = msgspec.json.decode(config.read_bytes(), type=ModelFiles) if config.exists() else ModelFiles()
    if template.exists():
        files.chat_template = template.read_text()
    return files


class FileTokenizer:
    """What vLLM would use. Raises ValueError for a file that is no tokenizer."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json" if path.is_dir() else path
        text = file.read_text()
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises the base class
            raise ValueError(f"{file}: {error}") from None
        self.vocab_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {token: each.content for token, each in added.items()}
        self._special = {token for token, each in added.items() if each.special}
        self._bytes_of = _byte_level_alphabet() if '"ByteLevel"' in text else {}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        return token_ids(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token: int) -> bytes:
        if token in self._special:
            return b""
        if token in self._added:
            return self._added[token].encode()
        piece = self._tokenizer.id_to_token(token) or ""
        if self._bytes_of:
            return bytes(self._bytes_of[char] for char in piece if char in self._bytes_of)
        fallback = _BYTE_FALLBACK.fullmatch(piece)
        return bytes([int(fallback[1], 16)]) if fallback else piece.replace("▁", " ").encode()

    def token_text(self, token: int) -> str:
        return self._added.get(token) or self.token_bytes(token).decode("utf-8", "replace")

    def token_name(self, token: int) -> str:
        return self._tokenizer.id_to_token(token) or ""


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes: printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
