"""Sends single cases to an engine, and the chain of two responses, whose second names the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import msgspec

from bench.calibration.cases import MODEL, RESPONSES, Case

_EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    streamed: bool
    body: bytes


class _Identified(msgspec.Struct):
    id: str


def probe(url: str, cases: Iterable[Case]) -> dict[str, Reply]:
    """By the case's name."""
    with httpx.Client(base_url=url, timeout=60) as client:
        return {case.name: _send(client, case) for case in cases}


def follow_up(url: str) -> dict[str, Reply]:
    """A response, one after it, and the first again by its id."""
    first = Case("responses, to be followed", RESPONSES, _input("Tell me of the sea. " * 60))
    with httpx.Client(base_url=url, timeout=60) as client:
        reply = _send(client, first)
        response_id = msgspec.json.decode(reply.body, type=_Identified).id
        second = Case("responses, after another", RESPONSES, _input("More.", response_id))
        again = Case("responses, one read again", f"{RESPONSES}/{response_id}")
        return {first.name: reply, second.name: _send(client, second), again.name: _send(client, again)}


def _input(text: str, previous: str | None = None) -> dict[str, object]:
    body: dict[str, object] = {"model": MODEL, "input": text, "max_output_tokens": 4, "ignore_eos": True}
    return body if previous is None else {**body, "previous_response_id": previous}


def _send(client: httpx.Client, case: Case) -> Reply:
    if case.body is None:
        response = client.get(case.path)
    elif isinstance(case.body, bytes):
        response = client.post(case.path, content=case.body, headers={"content-type": "application/json"})
    else:
        response = client.post(case.path, json=case.body)
    return Reply(response.status_code, response.headers.get("content-type", "").startswith(_EVENTS), response.content)
