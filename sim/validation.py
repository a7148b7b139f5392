"""What is wrong with a body, in pydantic's words and vLLM's form.

Source: vllm/entrypoints/serve/exception_handling/handlers/validation.py. Where a field may be of several types,
pydantic tells of each. vLLM's unions of chat messages and of prompts are larger than the sim's, so there it tells of
more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_SHOWN = 200

_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$(.*)`)?")
_WRONG = re.compile(r"Expected `([^`]+)`, got `[^`]+`(?: - at `\$(.*)`)?")

# By expected type: what is said of a text, of another value.
_WORDS: Mapping[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "int": (
        ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
        ("int_type", "Input should be a valid integer"),
    ),
    "float": (
        ("float_parsing", "Input should be a valid number, unable to parse string as a number"),
        ("float_type", "Input should be a valid number"),
    ),
    "bool": (
        ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
        ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
    ),
    "str": (
        ("string_type", "Input should be a valid string"),
        ("string_type", "Input should be a valid string"),
    ),
    "array": (
        ("list_type", "Input should be a valid list"),
        ("list_type", "Input should be a valid list"),
    ),
    "object": (
        ("model_attributes_type", "Input should be a valid dictionary or object to extract fields from"),
        ("model_attributes_type", "Input should be a valid dictionary or object to extract fields from"),
    ),
}
_FRACTION = ("int_from_float", "Input should be a valid integer, got a number with a fractional part")


@dataclass(frozen=True, slots=True)
class Problem:
    """`location` is dotted and begins with `body`; `given` is the value as vLLM shows it."""

    kind: str
    location: str
    words: str
    given: str
    context: Mapping[str, object] | None = None

    def __str__(self) -> str:
        told: dict[str, object] = {"type": self.kind, "loc": self.location, "msg": self.words, "input": self.given}
        return str(told if self.context is None else told | {"ctx": self.context})


def shown(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...[truncated]"


def wrong_type(expected: str, location: str, value: object) -> tuple[Problem, ...]:
    """`expected`: types as msgspec names them, with ` | ` between them."""
    problems = []
    for kind in expected.split(" | "):
        if kind == "null":
            continue
        of_text, of_other = _WORDS.get(kind, (("value_error", f"Expected {kind}"),) * 2)
        words = of_text if isinstance(value, str) else of_other
        if kind == "int" and isinstance(value, float):
            words = _FRACTION
        problems.append(Problem(words[0], location, words[1], shown(value)))
    return tuple(problems)


def missing(location: str, parent: object) -> Problem:
    return Problem("missing", location, "Field required", shown(parent))


def negative(location: str, value: int) -> Problem:
    words = "Input should be greater than or equal to 0"
    return Problem("greater_than_equal", location, words, shown(value), {"ge": 0})


def explain(data: bytes, error: str) -> tuple[Problem, ...]:
    """`data` is what could not be decoded, `error` what msgspec said of it."""
    if not data:
        return (missing("body", None),)
    try:
        body = json.loads(data)
    except json.JSONDecodeError as problem:
        return (_no_json(problem.pos, problem.msg),)
    except (UnicodeDecodeError, RecursionError):
        return (_no_json(0, "Expecting value"),)
    if found := _MISSING.match(error):
        path = _path(found[2] or "")
        return (missing(".".join(("body", *path, found[1])), _at(body, path)),)
    if found := _WRONG.match(error):
        path = _path(found[2] or "")
        return wrong_type(found[1], ".".join(("body", *path)), _at(body, path))
    return (Problem("value_error", "body", error, shown(body)),)


def _no_json(position: int, reason: str) -> Problem:
    return Problem("json_invalid", f"body.{position}", "JSON decode error", shown({}), {"error": reason})


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[.\[\]]+", text) if part)


def _at(value: object, path: tuple[str, ...]) -> object:
    """The value there; of what cannot be followed, the last that could."""
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
    return value
