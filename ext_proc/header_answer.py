"""The answers that nearly every request gets, as protobuf's bytes: headers to overwrite, after the headers or after the
body. In half of protobuf's time, or less.

    ProcessingResponse{request_headers 1, request_body 3: HeadersResponse, BodyResponse{response 1: CommonResponse{
        header_mutation 2: HeaderMutation{set_headers 1: HeaderValueOption{
            header 1: HeaderValue{key 1, raw_value 3}, append_action 3: OVERWRITE_IF_EXISTS_OR_ADD = 2}}}}}

Source of the encoding: protobuf.dev, "Encoding". Envoy's messages only ever gain fields.
"""

from __future__ import annotations

from homing.ext_proc.events import SetHeaders

_OVERWRITE = b"\x18\x02"

WANTS_BODY = b"\x0a\x02\x0a\x00\x4a\x06\x10\x02\x18\x02\x30\x01"
"""No header, and mode_override 9: ProcessingMode{response_header_mode 2: SKIP, request_body_mode 3: BUFFERED,
response_trailer_mode 6: SEND}."""


def header_answer(set_headers: SetHeaders) -> bytes:
    """One ProcessingResponse, to the headers."""
    mutation = b"".join([_option(key.encode(), value) for key, value in set_headers])
    size = len(mutation)
    if 0x80 <= size < 0x3F00:  # every length around it is two bytes then
        return b"\x0a%c%c\x0a%c%c\x12%c%c%b" % (*_two(size + 6), *_two(size + 3), *_two(size), mutation)
    return _field(b"\x0a", _response(mutation))


def body_answer(set_headers: SetHeaders) -> bytes:
    """One ProcessingResponse, to a body that stays as it is."""
    mutation = b"".join([_option(key.encode(), value) for key, value in set_headers])
    size = len(mutation)
    if 0x80 <= size < 0x3F00:
        return b"\x1a%c%c\x0a%c%c\x12%c%c%b" % (*_two(size + 6), *_two(size + 3), *_two(size), mutation)
    return _field(b"\x1a", _response(mutation))


def _response(mutation: bytes) -> bytes:
    common = _field(b"\x12", mutation) if mutation else b""
    return _field(b"\x0a", common)


def _option(key: bytes, value: bytes) -> bytes:
    named, valued = len(key), len(value)
    size = named + valued
    if valued and size < 100:  # every length is one byte then
        return b"\x0a%c\x0a%c\x0a%c%b\x1a%c%b\x18\x02" % (size + 8, size + 4, named, key, valued, value)
    header = _field(b"\x0a", key) + (_field(b"\x1a", value) if value else b"")
    return _field(b"\x0a", _field(b"\x0a", header) + _OVERWRITE)


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _two(number: int) -> tuple[int, int]:
    return number & 0x7F | 0x80, number >> 7


def _varint(number: int) -> bytes:
    if number < 0x80:
        return b"%c" % number
    if number < 0x4000:
        return b"%c%c" % (number & 0x7F | 0x80, number >> 7)
    return b"%c%b" % (number & 0x7F | 0x80, _varint(number >> 7))
