"""What is wrong with a file: where, what was found there, and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The way from the top of the file to a value: keys and list indices."""

MAX_PROBLEMS = 200
"""More of them help nobody, and a hostile file must not grow the answer."""

_PLAIN_KEY = re.compile(r"[\w./@:+-]{1,64}", re.ASCII)
_SHOWN = 60  # characters of a found value


@dataclass(frozen=True, slots=True)
class Problem:
    """One line for the user. `line` counts from 1 and is None where the file could not be read;
    `key` is dotted (`pools.qwen-72b.replicas[1].address`), empty for the file as a whole."""

    file: str
    line: int | None
    key: str
    found: str
    allowed: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        return f"{where}:{key} found {self.found}, allowed: {self.allowed}"


class ConfigError(Exception):
    """The file is not a configuration. Its text is one line per problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """The key as users write it; odd keys are quoted, so that a problem stays on one line."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN_KEY.fullmatch(part) else quoted(part))
    return text


def quoted(text: str) -> str:
    """`text` in double quotes, ASCII, cut short."""
    cut = text[:_SHOWN]
    return json.dumps(cut) + ("..." if len(text) > _SHOWN else "")
