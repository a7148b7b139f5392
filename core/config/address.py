"""host:port as written in the file: an IP literal (IPv6 in brackets) or a DNS name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"  # with "_": container names have it
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.ASCII)
HTTPS = "https://"
_LOOPBACK_V4 = ip_network("127.0.0.0/8")
_LOOPBACK_V6 = IPv6Address("::1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens. `host` is without brackets; `str()` gives `host:port` with them."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError when `text` is not host:port with a port from 1 to 65535."""
        host, colon, port = text.rpartition(":")
        if not colon or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
            raise ValueError("no port from 1 to 65535")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(_ipv6(host[1:-1])), int(port))
        # A name that ends in a number is an IPv4 address or a mistake (WHATWG URL, "ends in a number").
        if host.rstrip(".").rpartition(".")[2].isdigit():
            return cls(str(IPv4Address(host)), int(port))
        if len(host) > 253 or not _NAME.fullmatch(host):
            raise ValueError("not a DNS name")
        return cls(host, int(port))

    @property
    def ip(self) -> IPv4Address | IPv6Address | None:
        """None for a DNS name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def is_loopback(self) -> bool:
        """Only the literals: what a name leads to is not known here. IPv4-mapped ones differ by Python's version."""
        ip = self.ip
        return ip in _LOOPBACK_V4 if isinstance(ip, IPv4Address) else ip == _LOOPBACK_V6

    def overlaps(self, other: Address) -> bool:
        """Whether both cannot be listened on at once: the same port on the same host, or on every host."""
        if self.port != other.port:
            return False
        hosts = (self.host.lower(), other.host.lower())
        return hosts[0] == hosts[1] or any((ip := a.ip) is not None and ip.is_unspecified for a in (self, other))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EngineAddress(Address):
    """Where an engine is. `secure`: it speaks TLS."""

    secure: bool = False

    @classmethod
    def parse(cls, text: str) -> EngineAddress:
        """Of host:port, or of https://host:port. Raises ValueError."""
        plain = text.removeprefix(HTTPS)
        address = Address.parse(plain)
        return cls(address.host, address.port, plain != text)

    def __str__(self) -> str:
        """Without the scheme."""
        return Address.__str__(self)


def _ipv6(text: str) -> IPv6Address:
    if "%" in text:
        raise ValueError("a zone belongs to one machine")
    return IPv6Address(text)
