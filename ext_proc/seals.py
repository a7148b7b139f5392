"""The seals that the file asks for, with their keys, which stand elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from homing.control.secrets import resolve
from homing.core.config import Config
from homing.core.config.secret import SecretRef
from homing.core.seal import Seal
from homing.ext_proc.identity import Seals

MIN_KEY_BYTES = 16


def seals(config: Config, file: Path, environment: Mapping[str, str]) -> Seals:
    """Raises SecretError."""
    cookie, signed = config.sessions.cookie, config.sessions.signed

    def key(ref: SecretRef) -> bytes:
        """Of a length that a seal takes."""
        return blake2b(resolve(ref, file, environment, MIN_KEY_BYTES)).digest()

    return Seals(
        None if cookie is None else Seal((key(cookie.secret),), b"cookie", cookie.max_age_s),
        None if signed is None else Seal(tuple(map(key, signed.keys)), b"session", signed.lifetime_s),
    )
