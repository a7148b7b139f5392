"""Who may do what at the control service, by the tokens that the file names. Read anew whenever they are asked for, so
that a file may be replaced at any time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path

from homing.control.secrets import SecretError, resolve
from homing.core.config.secret import SecretRef
from homing.core.config.tls import Tokens

MIN_BYTES = 16

log = logging.getLogger(__name__)


class TokenCheck:
    """Compares what is shown with what the file names now. A token that cannot be read is nobody's."""

    def __init__(self, tokens: Callable[[], Tokens], file: Path) -> None:
        """`tokens`: the newest; `file`: the one that names them."""
        self._tokens = tokens
        self._file = file

    def say_what_is_missing(self) -> None:
        """In the log, before somebody is refused for it."""
        tokens = self._tokens()
        for ref in (tokens.admin, tokens.fleet):
            if ref is not None:
                _expected(ref, self._file)

    @property
    def guards_writes(self) -> bool:
        return self._tokens().admin is not None

    def is_admin(self, authorization: str) -> bool:
        return _same(authorization, self._tokens().admin, self._file)

    def is_member(self, authorization: str) -> bool:
        """Of the fleet, or the admin."""
        return _same(authorization, self._tokens().fleet, self._file) or self.is_admin(authorization)

    def admits_envoy(self, authorization: str) -> bool:
        """Everybody, where no token of the fleet is named."""
        return self._tokens().fleet is None or self.is_member(authorization)


def bearer(ref: SecretRef, file: Path) -> str:
    """The value of `authorization` that shows the token. Raises SecretError."""
    try:
        return f"Bearer {resolve(ref, file, os.environ, MIN_BYTES).decode('ascii')}"
    except UnicodeDecodeError:
        raise SecretError(f"{ref}: is not ASCII") from None


def shown_by_members(tokens: Tokens, file: Path) -> str | None:
    """What a picker shows the control service; None where nothing is asked for. Raises SecretError."""
    ref = tokens.fleet or tokens.admin
    return None if ref is None else bearer(ref, file)


def _same(authorization: str, ref: SecretRef | None, file: Path) -> bool:
    if ref is None:
        return False
    expected = _expected(ref, file)
    return expected is not None and compare_digest(authorization.encode("utf-8", "surrogateescape"), expected.encode())


def _expected(ref: SecretRef, file: Path) -> str | None:
    try:
        return bearer(ref, file)
    except SecretError as error:
        log.error("nobody can show this token: %s", error)
        return None
