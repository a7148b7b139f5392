"""What an answer looks like, whatever it says: which fields it has, of which types, in which order events come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

# Objects whose keys are data.
_MAPS = ("choices[].logprobs.top_logprobs[]", "choices[].prompt_logprobs[]")
_DONE = "[DONE]"

Fields = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event, or a whole body as one. `fields`: by path, the types met there."""

    name: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Difference:
    """`path` says where; `vllm` and `sim` what is there, "" for nothing."""

    path: str
    vllm: str
    sim: str


def fields(body: bytes) -> Fields:
    found: dict[str, set[str]] = {}
    for path, kind in _walk("", msgspec.json.decode(body)):
        found.setdefault(path, set()).add(kind)
    return {path: frozenset(kinds) for path, kinds in found.items()}


def packed_events(payloads: Iterable[bytes]) -> Fields:
    """Of KV events in batches, by the type of the event."""
    found: dict[str, set[str]] = {}
    for payload in payloads:
        for event in msgspec.msgpack.decode(payload, type=tuple[float, list[dict[str, object]], int | None])[1]:
            for path, kind in _walk(str(event.get("type")), event):
                found.setdefault(path, set()).add(kind)
    return {path: frozenset(kinds) for path, kinds in found.items()}


def events(body: bytes) -> list[Event]:
    """Of a stream; like ones that follow each other count as one, for how many tokens come at once is chance."""
    found: list[Event] = []
    for part in body.split(b"\n\n"):
        name, data = "", None
        for line in part.split(b"\n"):
            key, _, value = line.partition(b": ")
            if key == b"event":
                name = value.decode()
            elif key == b"data":
                data = value
        if data is None:
            continue
        event = Event(_DONE, {}) if data == _DONE.encode() else Event(name, fields(data))
        if not found or found[-1] != event:
            found.append(event)
    return found


def compare_fields(vllm: Fields, sim: Fields) -> list[Difference]:
    found = []
    for path in sorted(vllm.keys() | sim.keys()):
        there, here = _types(vllm, path), _types(sim, path)
        if there != here:
            found.append(Difference(path, there, here))
    return found


def compare_events(vllm: list[Event], sim: list[Event]) -> list[Difference]:
    """In order. Where the number of events differs, only that is told."""
    if [e.name for e in vllm] != [e.name for e in sim]:
        return [Difference("(events)", _outline(vllm), _outline(sim))]
    found = []
    for number, (there, here) in enumerate(zip(vllm, sim, strict=True)):
        for difference in compare_fields(there.fields, here.fields):
            found.append(Difference(f"event {number}: {difference.path}", difference.vllm, difference.sim))
    return found


def _walk(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield path, "object"
        for key, inner in value.items():
            name = "*" if path in _MAPS else str(key)
            yield from _walk(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from _walk(f"{path}[]", inner)
    else:
        yield path, _kind(value)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def _types(of: Fields, path: str) -> str:
    return " or ".join(sorted(of.get(path, ())))


def _outline(of: list[Event]) -> str:
    return ", ".join(event.name or "chunk" for event in of)
