"""How one process of homing's connects to another: whom it trusts, and what it shows."""

from __future__ import annotations

import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx

from homing.control.secrets import SecretError
from homing.control.tls import ProcessTls
from homing.control.tokens import shown_by_members
from homing.core.config import Config
from homing.core.config.tls import Tokens


@dataclass(frozen=True, slots=True)
class Trust:
    """`tls` None: httpx's own, for plain text."""

    tls: ssl.SSLContext | None = None
    auth: httpx.Auth | None = None

    @property
    def verify(self) -> ssl.SSLContext | bool:
        return True if self.tls is None else self.tls


PLAIN = Trust()


class MemberToken(httpx.Auth):
    """Shows the token that the file names, read anew for each request."""

    def __init__(self, tokens: Tokens, file: Path) -> None:
        self._tokens = tokens
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Raises httpx.RequestError for a token that cannot be read."""
        try:
            shown = shown_by_members(self._tokens, self._file)
        except SecretError as error:
            raise httpx.RequestError(f"a token that is to be shown cannot be read: {error}") from None
        if shown is not None:
            request.headers["authorization"] = shown
        yield request


def in_control(config: Config, file: Path, tls: ProcessTls, url: str) -> Trust:
    """For the control service at `url`, or those at several with commas between. Raises CertificateError."""
    return Trust(tls.client() if "https:" in url else None, MemberToken(config.tokens, file))


def in_pickers(tls: ProcessTls) -> ssl.SSLContext | None:
    """For the HTTP ports of pickers; None where they speak plain text. Raises CertificateError."""
    return tls.client() if tls.scheme("picker_http") == "https" else None
