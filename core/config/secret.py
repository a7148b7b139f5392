"""Where a secret stands. The file names the place; the secret itself never enters a Config, a problem or a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SecretRef:
    """`env:NAME`, or `file:PATH` (relative to the file that says so). `control.secrets` reads it."""

    source: Literal["env", "file"]
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


class NotShownError(ValueError):
    """A value was refused that may be a secret: the problem must not repeat it."""
