"""What all pickers of an installation share, and what is made of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from homing.control.secrets import resolve
from homing.core.config.secret import SecretRef

VARIABLE = "HOMING_SECRET"
MIN_BYTES = 16


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """`shared`: others have it too. Without, it is this process' own, and nothing can be shared."""

    shared: bool
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, named: SecretRef | None, file: Path, environment: Mapping[str, str]) -> SharedSecret:
        """The file's `sessions.secret`, else HOMING_SECRET, else one at random. Raises SecretError."""
        if named is None and VARIABLE not in environment:
            return cls(False, secrets.token_bytes(32))
        secret = resolve(named or SecretRef("env", VARIABLE), file, environment, MIN_BYTES)
        return cls(True, blake2b(secret).digest())

    def sessions(self) -> bytes:
        """The key of the sessions' digests: up to 64 bytes."""
        return self._derived(b"sessions")

    def token(self) -> str:
        """What siblings show each other."""
        return self._derived(b"siblings").hex()[:64]

    def texts(self) -> bytes:
        """The key that texts of sessions are encrypted with: 32 bytes."""
        return self._derived(b"texts")[:32]

    def namespace(self) -> str:
        """Keeps installations apart that use one Redis. Tells nothing of the secret."""
        return self._derived(b"namespace").hex()[:16]

    def _derived(self, purpose: bytes) -> bytes:
        return blake2b(key=self._key, person=purpose).digest()
