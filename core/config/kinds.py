"""The kinds of values that keys take. Each checks one value and says in words what it allows.

They stand in the models as pydantic validators, and raise ValueError with those words; docs/configuration.md
has the same words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from homing.core.config.address import Address, EngineAddress
from homing.core.config.secret import NotShownError, SecretRef

# RFC 9110 5.6.2 `token`, lower case since HTTP/2 (RFC 9113 8.2.1), without the marks that nobody uses:
# Envoy's format strings, into which these names go, give meaning to some.
_FIELD_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_REDIS_URL = re.compile(r"(rediss?(\+(sentinel|cluster))?|unix)://([^:@/?\s]*@)?(?!.*(@|password))[^\s]+", re.ASCII)
_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")  # RFC 9110 7.6.1
)
_OF_THE_MESSAGE = frozenset(("host", "content-length", "content-type", "content-encoding", "accept", "expect", "date"))
# The session id goes back to the client and on to the replica: a credential must not.
_CREDENTIALS = frozenset(("authorization", "proxy-authorization", "proxy-authenticate", "cookie", "set-cookie"))
_PER_REQUEST = frozenset(
    ("x-request-id", "request-id", "x-client-request-id", "x-amzn-requestid", "x-amzn-trace-id", "traceparent",
     "tracestate", "x-b3-traceid", "x-b3-spanid", "x-cloud-trace-context")
)  # fmt: skip
_OURS = ("x-homing-", "x-envoy-", "x-gateway-destination-endpoint", "x-session-close", "x-data-parallel-rank")


@dataclass(frozen=True, slots=True)
class Integer:
    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def __call__(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class IntegerOr:
    """An integer, or one word."""

    low: int
    high: int
    word: str

    @property
    def allowed(self) -> str:
        return f"{self.word} or {Integer(self.low, self.high).allowed}"

    def __call__(self, value: object) -> int | str:
        if value == self.word:
            return self.word
        try:
            return Integer(self.low, self.high)(value)
        except ValueError:
            raise ValueError(self.allowed) from None


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; kept as float."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"a number from {self.low:.12g} to {self.high:.12g}"

    def __call__(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value) if abs(value) <= self.high else math.inf  # also an int that no float holds
            if self.low <= number <= self.high:
                return number
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class Switch:
    allowed: str = "true or false"

    def __call__(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class Choice:
    choices: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return " or ".join(self.choices)

    def __call__(self, value: object) -> str:
        if isinstance(value, str) and value in self.choices:
            return value
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class Text:
    """Text of one form. `allowed` is the pattern in words."""

    pattern: str
    allowed: str
    reserved: tuple[str, ...] = ()  # prefixes

    def __call__(self, value: object) -> str:
        if isinstance(value, str):
            if re.fullmatch(self.pattern, value, re.ASCII) and not value.startswith(self.reserved):
                return value
            raise ValueError(self.allowed)
        # An id like 7 is fine but for its type, and the pattern alone would not say so.
        hint = f' (as text: "{value}", in quotes)' if isinstance(value, bool | int | float) else ""
        raise ValueError(self.allowed + hint)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands. What is refused is not shown: it may be the secret, pasted into the file."""

    allowed: str = "env:NAME or file:PATH (the place of the secret, not the secret)"

    def __call__(self, value: object) -> SecretRef:
        if isinstance(value, SecretRef):
            return value
        if isinstance(value, str):
            source, _, name = value.partition(":")
            if source == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,255}", name, re.ASCII):
                return SecretRef("env", name)
            if source == "file" and 0 < len(name) <= 4096 and name.isprintable():
                return SecretRef("file", name)
        raise NotShownError(self.allowed)


@dataclass(frozen=True, slots=True)
class InFile:
    """A file, named as secrets are: certificates and keys have to be files, since Envoy reads them too."""

    allowed: str = "file:PATH (a file in PEM)"

    def __call__(self, value: object) -> SecretRef:
        try:
            found = Secret()(value)
        except ValueError:
            raise NotShownError(self.allowed) from None
        if found.source != "file":
            raise ValueError(self.allowed)
        return found


@dataclass(frozen=True, slots=True)
class PinStore:
    """Where homes are kept. A URL with a password in it is refused and not shown."""

    allowed: str = (
        "memory, or the URL of a Redis without a password (redis://, rediss://, unix://, redis+sentinel://,"
        " redis+cluster://, or these two with rediss+), or env:NAME or file:PATH where the URL stands"
    )

    def __call__(self, value: object) -> str | SecretRef:
        if value == "memory" or (isinstance(value, str) and _REDIS_URL.fullmatch(value)):
            return value
        try:
            return Secret()(value)
        except ValueError:
            raise NotShownError(self.allowed) from None


@dataclass(frozen=True, slots=True)
class StateStore:
    """Where control services keep what they know. A cluster is none: what must change together is in several keys."""

    allowed: str = (
        "local, or the URL of a Redis without a password (redis://, rediss://, unix://, redis+sentinel://,"
        " rediss+sentinel://), or env:NAME or file:PATH where the URL stands"
    )

    def __call__(self, value: object) -> str | SecretRef:
        if value == "local":
            return "local"
        try:
            store = PinStore()(value)
        except ValueError:
            raise NotShownError(self.allowed) from None
        if isinstance(store, str) and (store == "memory" or "+cluster:" in store):
            raise ValueError(self.allowed)
        return store


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name of a request header that says the same thing over a whole session; made lower case."""

    allowed: str = (
        "a header's name of up to 64 of a-z 0-9 . _ - that stays the same over a session: not x-homing-*, x-envoy-*, a"
        " hop-by-hop or content header, a credential, nor an id of one request (x-request-id, traceparent)"
    )

    def __call__(self, value: object) -> str:
        if isinstance(value, str) and value.isascii():  # some other letters have ASCII ones as lower case
            name = value.lower()
            unfit = name in _HOP_BY_HOP | _OF_THE_MESSAGE | _CREDENTIALS | _PER_REQUEST
            if _FIELD_NAME.fullmatch(name) and not unfit and not name.startswith(_OURS):
                return name
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """A FieldName, or two with a + between: a session in the first, a part of it (a subagent) in the second."""

    allowed: str = FieldName().allowed + "; or two of them with a + between, the second optional in a request"

    def __call__(self, value: object) -> str:
        names = value.split("+") if isinstance(value, str) else []
        if not 1 <= len(names) <= 2:
            raise ValueError(self.allowed)
        try:
            return "+".join(map(FieldName(), names))
        except ValueError:
            raise ValueError(self.allowed) from None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a replica is: an IP address or a name to resolve."""

    allowed: str = (
        "host:port without a scheme: an IP address ([...] around IPv6) or a DNS name, and a port from 1 to 65535"
    )

    def __call__(self, value: object) -> Address:
        return _address(value, self.allowed)


@dataclass(frozen=True, slots=True)
class Engine:
    """Where a replica is, and whether it speaks TLS."""

    allowed: str = (
        "host:port or https://host:port: an IP address ([...] around IPv6) or a DNS name, and a port from 1 to 65535"
    )

    def __call__(self, value: object) -> EngineAddress:
        if isinstance(value, EngineAddress):
            return value
        if isinstance(value, Address):
            return EngineAddress(value.host, value.port)
        if isinstance(value, str):
            try:
                return EngineAddress.parse(value)
            except ValueError:
                pass
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a process of ours listens: an IP literal, since Envoy takes no name there."""

    allowed: str = "an IP address of this machine and a port from 1 to 65535, such as 127.0.0.1:8080"
    loopback: bool = False

    def __call__(self, value: object) -> Address:
        address = _address(value, self.allowed)
        if address.ip is None or (self.loopback and not address.is_loopback):
            raise ValueError(self.allowed)
        return address


@dataclass(frozen=True, slots=True)
class ListOf:
    """Checked before the items are."""

    what: str
    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a list of {self.low} to {self.high} {self.what}"

    def __call__(self, value: object) -> object:
        if isinstance(value, list | tuple) and self.low <= len(value) <= self.high:
            return value
        raise ValueError(self.allowed)


@dataclass(frozen=True, slots=True)
class MapOf:
    """Checked before the entries are."""

    what: str
    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a mapping of {self.low} to {self.high} {self.what}"

    def __call__(self, value: object) -> object:
        if isinstance(value, dict) and self.low <= len(value) <= self.high:
            return value
        raise ValueError(self.allowed)


def _address(value: object, allowed: str) -> Address:
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        try:
            return Address.parse(value)
        except ValueError:
            pass
    raise ValueError(allowed)
