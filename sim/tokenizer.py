"""The sim's own tokenizer: text to ids and back, with no table and no state.

An id IS its bytes: the little-endian number of the one to four UTF-8 bytes of the piece. So every process agrees on
every id without a vocabulary file, and every id below 2**31 decodes to something. Pieces follow the usual shape of
byte-pair tokenizers, about three characters each: a space belongs to the word behind it, words break after four
ASCII characters, other characters are pieces of their own, and a four-byte character is two pieces, so that a stream
can end inside a character as it can with a real model.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

TokenIds: TypeAlias = "array[int]"  # typecode "I"; by agreement never changed after it was handed over

BOS = "<|begin_of_text|>"
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", BOS)

_SPECIAL_BASE = 0x7FFFFF00
_PLAIN = re.compile(r" ?[!-~]+")  # broken after every fourth character and nowhere else
_PIECE = re.compile(r" [!-~]{1,3}|[!-~]{1,4}|[\s\S]")
_SPECIAL = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")
_MAX_CACHED_WORD = 32
_MAX_CACHED_WORDS = 1 << 16


def token_ids(values: Iterable[int] = ()) -> TokenIds:
    """Ids as the sim keeps them: four bytes each. Raises OverflowError for one outside 32 bits."""
    return array("I", values)


class Tokenizer(Protocol):
    vocab_size: int

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        """Special tokens that are written in the text are themselves; `add_special_tokens` adds what the tokenizer
        puts before every text, if it does."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token. Special tokens have none, as `skip_special_tokens` is vLLM's default."""
        ...

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def token_text(self, token: int) -> str:
        """The token's text, special ones too."""
        ...

    def token_name(self, token: int) -> str:
        """The token as the vocabulary has it."""
        ...


class ByteTokenizer:
    """See the module. Text that came as lone surrogates is kept as a question mark."""

    vocab_size = 1 << 31

    def __init__(self, *, adds_bos: bool = False) -> None:
        self._adds_bos = adds_bos
        self._special_ids = {s: _SPECIAL_BASE + i for i, s in enumerate(SPECIALS)}
        self._special_texts = {i: s for s, i in self._special_ids.items()}
        self._words = _Words()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        ids = token_ids([self._special_ids[BOS]] if self._adds_bos and add_special_tokens else ())
        if "<|" not in text:
            self._encode_plain(text, ids)
            return ids
        for part in _SPECIAL.split(text):
            special = self._special_ids.get(part)
            if special is not None:
                ids.append(special)
            elif part:
                self._encode_plain(part, ids)
        return ids

    def token_bytes(self, token: int) -> bytes:
        if token in self._special_texts:
            return b""
        return token.to_bytes(4, "little").rstrip(b"\0") or b"\0"

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        specials = {} if skip_special_tokens else self._special_texts
        pieces = (specials[token].encode() if token in specials else self.token_bytes(token) for token in tokens)
        return b"".join(pieces).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        return self._special_texts.get(token) or self.token_bytes(token).decode("utf-8", "replace")

    def token_name(self, token: int) -> str:
        return self.token_text(token)

    def _encode_plain(self, text: str, ids: TokenIds) -> None:
        """Word by word, since words repeat: many times faster than piece by piece on long conversations."""
        first, *rest = text.split(" ")
        encoded = array("I", _pieces(first) + b"".join(map(self._words.__getitem__, rest)))
        if sys.byteorder == "big":
            encoded.byteswap()
        ids.extend(encoded)


class _Words(dict[str, bytes]):
    """The pieces of words behind a space, as far as they are worth remembering."""

    def __missing__(self, word: str) -> bytes:
        pieces = _pieces(" " + word)
        if len(word) <= _MAX_CACHED_WORD:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[word] = pieces
        return pieces


def _pieces(text: str) -> bytes:
    """Four bytes a piece: its own, then zeros, which is its id."""
    if _PLAIN.fullmatch(text):
        return text.encode() + bytes(-len(text) % 4)
    return b"".join(map(_padded, _PIECE.findall(text)))


def _padded(piece: str) -> bytes:
    data = piece.encode("utf-8", "replace")
    if len(data) == 4 and not piece.isascii():
        return data[:2] + b"\0\0" + data[2:] + b"\0\0"
    return data + bytes(-len(data) % 4)
