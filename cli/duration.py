"""Durations on the command line: 90, 90s, 15m, 1h30m."""

from __future__ import annotations

import re

import click

UNITS = {"h": 3600, "m": 60, "s": 1}
_FORM = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)


def duration(text: str) -> float:
    """Seconds; as the `type` of an option. Raises click.BadParameter."""
    match = _FORM.fullmatch(text)
    if not text or match is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 90, 90s, 15m or 1h30m")
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), UNITS.values(), strict=True))


def in_words(seconds: float) -> str:
    """14m 20s; nothing below zero."""
    whole = max(0, round(seconds))
    parts = [f"{n}{unit}" for n, unit in ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")) if n]
    return " ".join(parts[:2]) or "0s"
