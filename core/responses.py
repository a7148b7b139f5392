"""The Responses API: a response is kept by the replica that made it, and only there.

Its id is learned from the answer, kept in the table of homes as a session of its own, and asked for by the next turn
(`previous_response_id`) or by path. Source: OpenAI's API reference, "Responses"; vLLM keeps responses in memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from homing.core.chat import NotAnObjectError
from homing.core.session import SessionKey

PATH = b"/v1/responses"
HEAD_BYTES = 16 << 10
"""The id stands at the very beginning of an answer; what has none within so much is looked at no further."""

_NAMED = re.compile(rb"/v1/responses/([A-Za-z0-9_-]{1,128})(?:/(?:cancel|input_items))?(?:\?.*)?\Z")
# Quotes within JSON's strings are escaped, so a text cannot pass for a member.
_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')
_TAG = b"\1response\1"  # no header holds such bytes, so no session's id is ever taken for a response's
_ANYONES_TAG = b"\1somebody's response\1"


class _Body(msgspec.Struct):
    previous_response_id: msgspec.Raw = msgspec.Raw(b"")
    store: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request for a response says. `kept`: the engine is to keep the new one."""

    previous: bytes | None = None
    kept: bool = True


def key(tenant: bytes, response_id: bytes) -> SessionKey:
    """A response as a session of its tenant. It has no text: Envoy's hash knows nothing of it."""
    return SessionKey(tenant, _TAG + response_id, b"")


def anyones(response_id: bytes) -> SessionKey:
    """A response whoever it belongs to: says that it is somebody's."""
    return SessionKey(b"", _ANYONES_TAG + response_id, b"")


def named_by(path: bytes) -> bytes | None:
    """The id in the path of a request about one response."""
    found = _NAMED.search(path)
    return found[1] if found else None


def asked(body: bytes) -> Asked:
    """Raises NotAnObjectError."""
    try:
        parsed = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnObjectError(str(error)) from error
    return Asked(_text(parsed.previous_response_id), bytes(parsed.store) != b"false")


def id_in(head: bytes) -> bytes | None:
    """The id of the response whose answer begins with `head`: an object, or a stream that opens with
    `response.created`. None while it has not come."""
    found = _ID.search(head)
    return found[1] if found else None


def _text(raw: msgspec.Raw) -> bytes | None:
    try:
        return msgspec.json.decode(raw, type=str).encode() if raw else None
    except msgspec.DecodeError:
        return None
