"""When to stop asking who does not answer."""

from __future__ import annotations


class Circuit:
    """Opens after `failures` in a row; then one question in each `open_s` seconds is let through, until one is
    answered. Times are seconds of any monotonic clock, passed in."""

    __slots__ = ("_failed", "_failures", "_open_s", "_until")

    def __init__(self, failures: int, open_s: float) -> None:
        self._failures = failures
        self._open_s = open_s
        self._failed = 0
        self._until = 0.0

    @property
    def open(self) -> bool:
        return self._failed >= self._failures

    def allows(self, now: float) -> bool:
        """Whether to ask. While it is open, whoever is allowed is the one of this while."""
        if not self.open:
            return True
        if now < self._until:
            return False
        self._until = now + self._open_s
        return True

    def failed(self, now: float) -> None:
        self._failed += 1
        if self._failed == self._failures:
            self._until = now + self._open_s

    def succeeded(self) -> None:
        self._failed = 0
