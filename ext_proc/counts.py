"""What a picker counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """What a picker counts, as plain numbers: read by `metrics`, written without locks on one loop."""

    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, reason)
    odd_ids: Counter[str] = field(default_factory=Counter)  # kind
    violations: Counter[str] = field(default_factory=Counter)  # stage
    rejected: Counter[str] = field(default_factory=Counter)  # reason
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (pool, replica, status class)
    retried: Counter[str] = field(default_factory=Counter)  # pool
    fallbacks: Counter[str] = field(default_factory=Counter)  # pool: requests that Envoy placed alone
    keyless: Counter[str] = field(default_factory=Counter)  # what became of requests known by their history only
    closed: Counter[str] = field(default_factory=Counter)  # by whom
    learned: Counter[str] = field(default_factory=Counter)  # pool: places that an answer told
    repairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, repair)
    observed_repairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, repair), not made
    system_texts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, finding)
    complete: Counter[str] = field(default_factory=Counter)  # pool: prompts with every system text in them
    incomplete: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, reason)
    unchecked: Counter[str] = field(default_factory=Counter)  # reason
    texts_read: Counter[str] = field(default_factory=Counter)  # what came of asking Redis for them
    rehomed: Counter[str] = field(default_factory=Counter)  # pool: homes corrected by an outcome
