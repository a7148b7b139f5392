"""What is counted of the sharing: the values of the labels of homing_pins_*_total (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Peer(StrEnum):
    SIBLING = "sibling"
    REDIS = "redis"


class Why(StrEnum):
    """Why an exchange failed."""

    AWAY = "away"  # no connection, or it broke
    LATE = "late"  # no answer in time
    REFUSED = "refused"  # a wrong password, token or permission
    FULL = "full"  # Redis is out of its memory
    NONSENSE = "nonsense"  # an answer that cannot be understood


class Read(StrEnum):
    """What came of asking others for a session that was seen for the first time."""

    FOUND = "found"
    ABSENT = "absent"
    LATE = "late"  # no answer within the limit: the hash decided
    FAILED = "failed"
    SKIPPED = "skipped"  # not asked: it did not answer others a moment ago


@dataclass(slots=True)
class PinCounts:
    told: Counter[str] = field(default_factory=Counter)  # peer: words that arrived
    heard: Counter[str] = field(default_factory=Counter)  # peer: words that were news
    retold: Counter[str] = field(default_factory=Counter)  # peer: times that the whole table was told again
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)  # (peer, why)
    read: Counter[tuple[str, str]] = field(default_factory=Counter)  # (peer, outcome)
