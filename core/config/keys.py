"""What all sections of the file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Keys(BaseModel):
    """Frozen, hashable, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
