"""The keys of what homing issues under a signature: a browser's cookie, and signed ids."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, PlainValidator

from homing.core.config.keys import Keys
from homing.core.config.kinds import Choice, ListOf, Number, Secret, Switch, Text
from homing.core.config.secret import SecretRef

COOKIE_NAME = Text(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "a letter, digit or _, then up to 63 of A-Z a-z 0-9 _ . -"
)  # RFC 6265 4.1.1 `token`, without the marks that nobody uses
SameSite = Literal["lax", "strict", "none"]
Key = Annotated[SecretRef, PlainValidator(Secret())]
Lifetime = Annotated[float, PlainValidator(Number(60, 31_536_000))]


class Cookie(Keys):
    """Names a browser's session. For clients that are browsers and send no id themselves."""

    secret: Key
    name: Annotated[str, PlainValidator(COOKIE_NAME)] = "homing_session"
    max_age_s: Lifetime = 86_400.0
    secure: Annotated[bool, PlainValidator(Switch())] = True
    same_site: Annotated[SameSite, PlainValidator(Choice(get_args(SameSite)))] = "lax"


class Signed(Keys):
    """Ids that homing signs; all others are refused."""

    keys: Annotated[tuple[Key, ...], BeforeValidator(ListOf("places of keys", 1, 8))]
    lifetime_s: Lifetime = 86_400.0
