"""What a listener that is wider than loopback owes: somebody has to be asked who they are.

Looks at the tree, like `relations`.
"""

from __future__ import annotations

from collections.abc import Iterator

from homing.core.config.address import Address
from homing.core.config.document import Mapping, Node, Scalar
from homing.core.config.problems import Path, Problem, dotted


def broken_tls(root: Mapping, file: str) -> Iterator[Problem]:
    tokens, tls = _mapping(root, "tokens"), _mapping(root, "tls")
    if (wide := _wider(root, "api")) is not None and "admin" not in tokens:
        line, address = wide
        allowed = "a loopback address, or any with tokens.admin"
        yield Problem(file, line, "api", f"{address}, and no tokens.admin", allowed)
    asks = "fleet" in tokens or "client_ca" in _mapping(tls.get("xds")) or _is_true(tls.get("trusted_network"))
    if (wide := _wider(root, "xds")) is not None and not asks:
        line, address = wide
        found = f"{address}, and nobody who connects is asked who they are"
        allowed = "a loopback address, or any with tls.xds.client_ca, tokens.fleet or tls.trusted_network"
        yield Problem(file, line, "xds", found, allowed)
    yield from _halves(_mapping(tls.get("client")), ("tls", "client"), file)
    for pool_id, pool in _mapping(root, "pools").items():
        yield from _halves(_mapping(pool, "engine"), ("pools", pool_id, "engine"), file)


def _halves(section: dict[str, Node], path: Path, file: str) -> Iterator[Problem]:
    """A certificate without its key, or the other way round."""
    for one, other in (("cert", "key"), ("key", "cert")):
        if one in section and other not in section:
            found = f"nothing, though there is a {one}"
            yield Problem(file, section[one].line, dotted((*path, other)), found, "a certificate with its key")


def _wider(root: Mapping, key: str) -> tuple[int, Address] | None:
    """The line and the address, where the file says one that others can reach."""
    if key not in root.entries:
        return None
    line, node = root.entries[key]
    try:
        address = Address.parse(node.value if isinstance(node, Scalar) and isinstance(node.value, str) else "")
    except ValueError:
        return None
    return None if address.ip is None or address.is_loopback else (line, address)


def _mapping(node: Node | None, key: str | None = None) -> dict[str, Node]:
    """The entries of a section (`key` of `node`); none where it is missing or is no section."""
    if key is not None:
        node = node.get(key) if isinstance(node, Mapping) else None
    return {name: value for name, (_, value) in node.entries.items()} if isinstance(node, Mapping) else {}


def _is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.value is True
