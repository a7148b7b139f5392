"""What load and replicas say to each other."""

from __future__ import annotations

import json

MODEL = b"bench-model"
BODY_END = b',"end":1}'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chat_body(size_bytes: int) -> bytes:
    """A chat request of about that size, members in the order in which openai-python sends them."""
    messages = [{"role": "system", "content": "You are a careful assistant."}, {"role": "user", "content": ""}]
    empty = len(json.dumps({"messages": messages, "model": MODEL.decode(), "max_tokens": 50}, separators=(",", ":")))
    messages[1]["content"] = ("Say it again, please. " * (size_bytes // 22 + 1))[: max(0, size_bytes - empty)]
    body = {"messages": messages, "max_tokens": 50, "model": MODEL.decode()}
    return json.dumps(body, separators=(",", ":")).encode()


def conversation(number: int, size_bytes: int, run: str = "") -> tuple[bytes, bytes]:
    """Two turns of one, the second of about that size: it has the first in it, and an answer to it. `run` tells it from
    those of other runs: one that is begun again and again is, to a picker, several that have not differed yet."""
    first = [
        {"role": "system", "content": "You are a careful assistant."},
        {"role": "user", "content": f"This is conversation {number}{run}. " + "Say it, please. " * (size_bytes // 48)},
    ]
    answer = {"role": "assistant", "content": "word " * (size_bytes // 15)}
    second = [*first, answer, {"role": "user", "content": "Say it again, please. " * (size_bytes // 88)}]
    one, two = ({"messages": turns, "max_tokens": 50, "model": MODEL.decode()} for turns in (first, second))
    return json.dumps(one, separators=(",", ":")).encode(), json.dumps(two, separators=(",", ":")).encode()


def request(port: int, body: bytes, session: str | None, stream: str | None = None) -> bytes:
    """A POST as httpx writes it. `stream`: what `upstream` is to answer with."""
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "accept-encoding: gzip, deflate",
        "connection: keep-alive",
        "accept: application/json",
        "content-type: application/json",
        "user-agent: OpenAI/Python 1.50.0",
        "authorization: Bearer sk-0123456789abcdef0123456789abcdef",
        "x-stainless-lang: python",
        "x-stainless-package-version: 1.50.0",
        "x-stainless-os: Linux",
        "x-stainless-arch: x64",
        "x-stainless-runtime: CPython",
        "x-stainless-runtime-version: 3.11.7",
        "x-stainless-async: false",
        f"content-length: {len(body)}",
    ]
    if session is not None:
        lines.append(f"x-session-id: {session}")
    if stream is not None:
        lines.append(f"x-bench-stream: {stream}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
