"""What a diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Weight(StrEnum):
    FAULT = "fault"  # alone enough for the effect to be missing
    DOUBT = "doubt"  # makes the effect smaller, or the figures less certain


@dataclass(frozen=True, slots=True)
class Finding:
    """`seen`: the evidence; `change`: what to do. Sentences."""

    code: str
    weight: Weight
    seen: str
    change: str


def fault(code: str, seen: str, change: str) -> Finding:
    return Finding(code, Weight.FAULT, seen, change)


def doubt(code: str, seen: str, change: str) -> Finding:
    return Finding(code, Weight.DOUBT, seen, change)
