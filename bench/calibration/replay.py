"""Sends the conversations to one engine and keeps what it says of each request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import msgspec

from bench.calibration.conversations import Request

_DATA = b"data: "
_DONE = b"[DONE]"


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class Answer(msgspec.Struct):
    """A whole answer, or a chunk of one."""

    choices: list[msgspec.Raw] = []
    usage: Usage | None = None


class ReplayError(Exception):
    """An engine did not answer as it must for anything to be compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`ttft_s` only where the answer was streamed: until the first event with a choice."""

    prompt_tokens: int
    cached_tokens: int
    created_tokens: int | None  # written to the cache; only some endpoints tell
    output_tokens: int
    ttft_s: float | None = None

    @property
    def tokens(self) -> tuple[int, int, int | None, int]:
        """Everything that must be equal."""
        return self.prompt_tokens, self.cached_tokens, self.created_tokens, self.output_tokens


def replay(url: str, requests: Sequence[Request]) -> list[Outcome]:
    """One after the other. Raises ReplayError."""
    with httpx.Client(base_url=url, timeout=60) as client:
        return [_send(client, request) for request in requests]


def _send(client: httpx.Client, request: Request) -> Outcome:
    if request.body.get("stream"):
        return _send_streamed(client, request)
    response = client.post(request.path, json=request.body)
    if response.status_code != 200:
        raise ReplayError(f"{request.name}: {response.status_code} {response.text}")
    return _outcome(request, msgspec.json.decode(response.content, type=Answer).usage)


def _send_streamed(client: httpx.Client, request: Request) -> Outcome:
    usage, first_s, events = None, None, 0
    start_s = time.perf_counter()
    with client.stream("POST", request.path, json=request.body) as response:
        if response.status_code != 200:
            raise ReplayError(f"{request.name}: {response.status_code} {response.read().decode()}")
        for line in response.iter_lines():
            data = line.encode().removeprefix(_DATA)
            if not line or data == _DONE:
                continue
            answer = msgspec.json.decode(data, type=Answer)
            events += bool(answer.choices)
            if events == 2 and first_s is None:  # the first event is the role, sent before or with the first token
                first_s = time.perf_counter() - start_s
            usage = answer.usage or usage
    return _outcome(request, usage, first_s)


def _outcome(request: Request, usage: Usage | None, ttft_s: float | None = None) -> Outcome:
    if usage is None or usage.prompt_tokens_details is None or usage.prompt_tokens_details.cached_tokens is None:
        raise ReplayError(f"{request.name}: the answer does not say what was reused")
    cached, created = usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens_details.created_cache_tokens
    return Outcome(usage.prompt_tokens, cached, created, usage.completion_tokens, ttft_s)
