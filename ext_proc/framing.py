"""gRPC's framing of messages, and its statuses. Source: gRPC's doc/PROTOCOL-HTTP2.md, doc/statuscodes.md."""

from __future__ import annotations

import re
from enum import IntEnum

PREFIX_BYTES = 5  # a flag for compression, then the length


class Status(IntEnum):
    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14


class StatusError(Exception):
    """Ends a call with a status of its own."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_one(data: bytes) -> bool:
    """Whether it is one whole message, as it nearly always is."""
    return (
        len(data) >= PREFIX_BYTES and data[0] == 0 and int.from_bytes(data[1:PREFIX_BYTES]) == len(data) - PREFIX_BYTES
    )


class Messages:
    """Bytes in any pieces, whole messages out."""

    __slots__ = ("_buffer", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._buffer: bytearray | None = None
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raises StatusError for a message that is compressed or too long."""
        if self._buffer is None:
            if is_one(data):
                return [data[PREFIX_BYTES:]]
            self._buffer = bytearray()
        buffer = self._buffer
        buffer += data
        messages = []
        while len(buffer) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(buffer[1:PREFIX_BYTES])
            if buffer[0]:
                raise StatusError(Status.UNIMPLEMENTED, "compressed messages are not read")
            if end > PREFIX_BYTES + self._max_bytes:
                raise StatusError(Status.RESOURCE_EXHAUSTED, f"a message of {end - PREFIX_BYTES} bytes is too long")
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                messages.append(bytes(view[PREFIX_BYTES:end]))
            del buffer[:end]
        if not buffer:
            self._buffer = None
        return messages


def framed(message: bytes) -> bytes:
    return b"\0%b%b" % (len(message).to_bytes(4), message)


_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")


def timeout_s(value: bytes) -> float | None:
    """The header grpc-timeout in seconds; None for what it cannot be."""
    found = _TIMEOUT.fullmatch(value)
    return int(found[1]) * _UNIT_S[found[2]] if found else None
