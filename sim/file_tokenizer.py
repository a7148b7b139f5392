"""A model's own tokenizer, from its tokenizer.json: for prompts of exactly the model's length. Needs the extra `sim`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from homing.sim.tokenizer import TokenIds, token_ids


class TokenizerFileError(Exception):
    """No tokenizer file, or of a kind that the sim cannot turn into bytes token by token."""


class FileTokenizer:
    """Byte-level BPE (GPT-2, Llama 3, Qwen, ...): each token is some bytes, so text can be given as it comes."""

    def __init__(self, path: Path) -> None:
        """Raises TokenizerFileError."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerFileError(f"{path}: {error}") from None
        self.vocab_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder()
        self._specials = {token for token, about in added.items() if about.special}
        self._bytes = self._byte_table(path, {token: about.content for token, about in added.items()})
        beginning = self._tokenizer.encode("", add_special_tokens=True).ids
        self.adds_bos = bool(beginning)
        self.bos_id = beginning[0] if beginning else 0

    def encode(self, text: str) -> TokenIds:
        valid = text.encode("utf-8", "replace").decode()  # lone surrogates, which JSON can carry
        return token_ids(self._tokenizer.encode(valid, add_special_tokens=False).ids)

    def token_bytes(self, token: int) -> bytes:
        return b"" if token in self._specials else self._bytes.get(token, b"")

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        return self._bytes.get(token, b"").decode("utf-8", "replace")

    def _byte_table(self, path: Path, added: dict[int, str]) -> dict[int, bytes]:
        alphabet = _byte_alphabet()
        table = {}
        for name, token in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if token in added:
                table[token] = added[token].encode()
                continue
            try:
                table[token] = bytes(alphabet[character] for character in name)
            except KeyError:
                raise TokenizerFileError(f"{path}: {name!r} is no token of a byte-level tokenizer") from None
        return table


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable Latin-1 characters stand for themselves, the others for characters from 256 on, in order."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in plain)
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
