"""A chat template's text, as a model's publisher gives it."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

MAX_TEMPLATE_CHARS = 1_000_000


class ChatTemplate(msgspec.Struct, frozen=True):
    """`tool_use`: another text for requests with tools, where the publisher gives two. `special_tokens`: by the names
    that texts use, `bos_token` and the like, as pairs."""

    text: str
    tool_use: str | None = None
    special_tokens: tuple[tuple[str, str], ...] = (("bos_token", "<s>"), ("eos_token", "</s>"))

    @property
    def digest(self) -> str:
        """Of the content, 16 hex digits."""
        return blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()
