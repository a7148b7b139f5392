"""Reads the secrets that the file points to. They are kept in memory only, and are never logged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from homing.core.config.secret import SecretRef

MAX_BYTES = 64 << 10


class SecretError(Exception):
    """A secret cannot be had. Its text names the place, not the secret."""


def resolve(ref: SecretRef, beside: Path, environment: Mapping[str, str], min_bytes: int = 1) -> bytes:
    """The secret without blanks and line ends around it. `beside` is the file that names it: a relative path is
    relative to its directory. Raises SecretError, also for one shorter than `min_bytes`."""
    if ref.source == "env":
        text = environment.get(ref.name)
        if text is None:
            raise SecretError(f"{ref}: the variable is not set")
        secret = text.encode("utf-8", "surrogateescape").strip()
    else:
        secret = _content(ref, beside.parent / ref.name).strip()
    if len(secret) < min_bytes:
        raise SecretError(f"{ref}: shorter than {min_bytes} bytes")
    return secret


def _content(ref: SecretRef, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as e:
        raise SecretError(f"{ref}: {(e.strerror or str(e)).lower()}") from None
    if len(content) > MAX_BYTES:
        raise SecretError(f"{ref}: longer than {MAX_BYTES} bytes")
    return content
