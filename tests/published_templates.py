"""Chat templates that were published with wheels, as data: nothing of the wheels is imported."""

from __future__ import annotations

from importlib.metadata import files


def published(wheel: str, name: str) -> str:
    """The text of `name`.jinja of the wheel. LookupError where there is none."""
    found = [file for file in files(wheel) or [] if file.name == f"{name}.jinja"]
    if len(found) != 1:
        raise LookupError(f"{len(found)} templates {name}.jinja in the wheel {wheel}")
    return found[0].read_text(encoding="utf-8")
