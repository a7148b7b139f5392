"""What is known of a request that is to be placed, and what was decided for it."""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum

import msgspec

from homing.core.placement.load import Place
from homing.core.prefix.prompt import Prompt
from homing.core.session import SessionKey


class Arrival(msgspec.Struct, frozen=True):
    """What is known of a request when it is to be placed. `given`: the client sent the session's id. `size_bytes` of
    the body, 0 if unknown. `prompt`: its messages, where the body has been read."""

    key: SessionKey
    given: bool
    size_bytes: int = 0
    adapter: str | None = None
    subset: Set[str] | None = None
    prompt: Prompt | None = None


class Reason(StrEnum):
    """Why a request went where it went: the values of x-homing-decision that pickers set (docs/headers.md)."""

    NEW = "new"  # a session that begins: placed by cost, its id minted to fit the hash
    PLACED = "placed"  # a client's id elsewhere than at its owner, by cost, or one that could not be minted: pinned
    HOME = "home"  # a known session, at home
    HASH = "hash"  # a client's id seen for the first time (or after a restart): the hash's owner
    HISTORY = "history"  # no id, but its earlier turns were seen: where they were served
    RESPONSE = "response"  # goes on from a response, or asks for one: the only replica that has it
    MOVED = "moved"  # its home cannot serve it any more: now lives with the next on the hash
    LEFT = "left"  # its home could serve it, but staying would cost more than moving: now lives elsewhere


class Ref(msgspec.Struct, frozen=True, gc=False):
    """Names a decision to Envoy, whose access log brings it back with the outcome, maybe to another picker: the
    session's digest in the table of homes, the replica that Envoy was told, and the tokens that were expected to be
    prefilled there until the first token came, those that waited included. `at_most`: or fewer, if somebody's prompt
    began alike."""

    digest: bytes
    told: str
    tokens: int = 0
    at_most: bool = False

    def encode(self) -> bytes:
        return f"{self.digest.hex()}:{'-' if self.at_most else ''}{self.tokens}:{self.told}".encode()

    @classmethod
    def decode(cls, text: str) -> Ref | None:
        """None for what no `encode` gave."""
        digest, _, rest = text.partition(":")
        tokens, _, told = rest.partition(":")
        try:
            return cls(bytes.fromhex(digest), told, abs(int(tokens)), tokens.startswith("-"))
        except ValueError:
            return None


class Decision(msgspec.Struct, frozen=True):
    """`endpoints` in the order in which Envoy is to try them; `session` when a new id was minted; `uncached`: the
    tokens that are expected to be prefilled, of `tokens` in the prompt; `rank` where several data-parallel ranks share
    the address."""

    reason: Reason
    place: Place
    endpoints: tuple[str, ...]
    ref: Ref
    session: bytes | None = None
    uncached: float = 0.0
    size_bytes: int = 0
    rank: int | None = None
    tokens: float = 0.0
