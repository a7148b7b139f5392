"""Whose a request is, by its headers: the tenant, the session, and whether the one may name the other.

Envoy has made one id of the headers, or of a cookie, that may name a session. Here it is proved, where that is asked
for: a cookie that proves wrong is a new session, an id that proves wrong is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from homing.core.config.issued import Cookie
from homing.core.seal import Seal
from homing.core.session import SessionKey
from homing.ext_proc.events import Headers, SetHeaders

GIVEN = "x-homing-given"
"""Envoy says by it that the client has named its session."""

COOKIE = "x-homing-cookie"
SET_COOKIE = "x-homing-set-cookie"


@dataclass(frozen=True, slots=True)
class Seals:
    """What is needed to issue and to prove; None for what the file does not ask for."""

    cookie: Seal | None = None
    signed: Seal | None = None


NO_SEALS = Seals()


class Caller(msgspec.Struct, frozen=True):
    """`given`: the client named the session, and may. `refused`: it named one that it may not. `cookie`: what more to
    tell Envoy once the session has the id that is passed in; None where the client gets no cookie."""

    key: SessionKey
    given: bool
    refused: bool = False
    cookie: Callable[[bytes], SetHeaders] | None = None


class Identity:
    """`wall` is the time of day, in seconds since 1970; `fresh` makes unguessable ids."""

    def __init__(self, wall: Callable[[], float], fresh: Callable[[], bytes]) -> None:
        self.tenant_header: str | None = None
        self._wall = wall
        self._fresh = fresh
        self._cookie: Cookie | None = None
        self._seals = Seals()

    def configure(self, tenant_header: str | None, cookie: Cookie | None, seals: Seals) -> None:
        self.tenant_header = tenant_header
        self._cookie, self._seals = cookie, seals

    def key(self, headers: Headers) -> SessionKey:
        """As Envoy has made it, not yet proved."""
        tenant = headers.get(self.tenant_header, b"") if self.tenant_header else b""
        return SessionKey(tenant, headers.get("x-session-id", b""), headers.get("x-homing-key", b""))

    def of(self, headers: Headers) -> Caller:
        key = self.key(headers)
        given = GIVEN in headers
        cookie, seal = self._cookie, self._seals.cookie
        if cookie is not None and seal is not None and (COOKIE in headers or not given):
            return self._by_cookie(headers, key, cookie, seal)
        signed = self._seals.signed
        refused = given and signed is not None and signed.open(key.session, key.tenant, self._wall()) is None
        return Caller(key, given, refused)

    def sign(self, session: bytes, tenant: bytes) -> bytes:
        """An id that is about to be issued, as it is issued."""
        signed = self._seals.signed
        return session if signed is None else signed.sign(session, tenant, self._wall())

    @property
    def signs(self) -> bool:
        return self._seals.signed is not None

    @property
    def gives_cookies(self) -> bool:
        """To browsers that name no session."""
        return self._cookie is not None

    def _by_cookie(self, headers: Headers, key: SessionKey, cookie: Cookie, seal: Seal) -> Caller:
        """Half of its time over, a cookie is given anew."""
        now_s = self._wall()

        def give(session: bytes) -> SetHeaders:
            return ((SET_COOKIE, _set_cookie(cookie, seal.sign(session, key.tenant, now_s))),)

        opened = seal.open(headers.get(COOKIE, b""), key.tenant, now_s)
        if opened is not None and opened.payload == key.session:
            return Caller(key, True, cookie=give if opened.left_s < cookie.max_age_s / 2 else None)
        if COOKIE in headers:  # Envoy took its word for the id
            key = key.named(self._fresh())
        # only browsers keep a cookie for one person; a program's library would share it among all conversations
        return Caller(key, False, cookie=give if headers.get("user-agent", b"").startswith(b"Mozilla/") else None)


def _set_cookie(cookie: Cookie, value: bytes) -> bytes:
    """RFC 6265 4.1."""
    text = f"{cookie.name}={value.decode('latin-1')}; Max-Age={cookie.max_age_s:.0f}; Path=/; HttpOnly"
    return f"{text}; SameSite={cookie.same_site.capitalize()}{'; Secure' if cookie.secure else ''}".encode("latin-1")
