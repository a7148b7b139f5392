"""What keys owe to each other: names, ids, addresses and headers that may stand only once.

Looks at the tree, not at the models, so that these problems are told together with all others.
"""

from __future__ import annotations

from collections.abc import Iterator

from homing.core.config.address import Address, EngineAddress
from homing.core.config.discovery import MAX_RANKS
from homing.core.config.document import Mapping, Node, Scalar, Sequence, locate
from homing.core.config.models import Auto, FileSection, Sessions
from homing.core.config.problems import Path, Problem, dotted, quoted
from homing.core.config.tls_relations import broken_tls
from homing.core.fleet import ranked

LISTENERS = ("listen", "admin", "xds", "api")

Text = tuple[Path, int, str]
"""A text of the file: where, its line, and what it says."""


def broken_relations(root: Mapping, file: str) -> Iterator[Problem]:
    yield from _listeners(root, file)
    yield from broken_tls(root, file)
    headers = list(_session_headers(root))
    yield from _repeated(headers, file, "each header once")
    yield from _tenant_header(root, headers, file)
    yield from _pins(root, file)
    names: list[Text] = []
    pools = root.get("pools")
    if isinstance(pools, Mapping):
        for pool_id, (line, pool) in pools.entries.items():
            names += _names(pool_id, line, pool)
            yield from _no_replicas(pool_id, line, pool, file)
            yield from _repeated(_replica_ids(pool_id, pool), file, "an id that no other replica of the pool has")
            yield from _isolation(pool_id, pool, root, file)
            addresses = (
                (path, line, str(address))
                for path, line, text in _replica_texts(pool_id, pool, "address")
                if (address := _address(text)) is not None
            )
            yield from _repeated(addresses, file, "an address that no other replica of the pool has")
    yield from _auto(root, file)
    names += _auto_name(root)
    yield from _repeated(names, file, "a model name that leads to one pool, and once")


def _repeated(texts: Iterator[Text] | list[Text], file: str, allowed: str) -> Iterator[Problem]:
    first: dict[str, tuple[Path, int]] = {}
    for path, line, text in texts:
        if text in first:
            where, earlier = first[text]
            yield Problem(file, line, dotted(path), f"{quoted(text)} again ({dotted(where)}, line {earlier})", allowed)
        else:
            first[text] = (path, line)


def _listeners(root: Mapping, file: str) -> Iterator[Problem]:
    taken: list[tuple[str, Address]] = []
    # Those that the file names come last, so that the problem is told where the file can be changed.
    for key in sorted(LISTENERS, key=lambda k: root.entries[k][0] if k in root.entries else 0):
        line, node = root.entries.get(key, (root.line, None))
        address = FileSection.model_fields[key].default if node is None else _address(_text(node))
        if not isinstance(address, Address):
            continue
        for other, its in taken:
            if address.overlaps(its):
                default = "" if other in root.entries else " by default"
                found = f"{address}, where {other} listens{default} ({its})"
                yield Problem(file, line, key, found, f"an address of its own for each of {', '.join(LISTENERS)}")
                break
        taken.append((key, address))


def _session_headers(root: Mapping) -> Iterator[Text]:
    sessions = root.get("sessions")
    headers = sessions.get("headers") if isinstance(sessions, Mapping) else None
    path: Path = ("sessions", "headers")
    if headers is None:
        for i, header in enumerate(Sessions().headers):
            yield from (((*path, i), root.line, name) for name in header.split("+"))
    elif isinstance(headers, Sequence):
        for i, item in enumerate(headers.items):
            if (text := _text(item)) is not None:
                yield from (((*path, i), item.line, name) for name in text.lower().split("+") if name)


def _tenant_header(root: Mapping, session_headers: list[Text], file: str) -> Iterator[Problem]:
    tenants = root.get("tenants")
    if isinstance(tenants, Mapping) and "header" in tenants.entries:
        line, node = tenants.entries["header"]
        text = (_text(node) or "").lower()
        if any(text == name for _, _, name in session_headers):
            found = f"{quoted(text)}, which names the session too"
            yield Problem(file, line, "tenants.header", found, "a header that is not in sessions.headers")


def _auto_name(root: Mapping) -> Iterator[Text]:
    if "auto" in root.entries:
        line, auto = root.entries["auto"]
        model = auto.get("model") if isinstance(auto, Mapping) else None
        text = Auto.model_fields["model"].default if model is None else _text(model)
        if text is not None:
            yield ("auto", "model"), line if model is None else model.line, text


def _auto(root: Mapping, file: str) -> Iterator[Problem]:
    auto, pools = root.get("auto"), root.get("pools")
    listed = auto.get("pools") if isinstance(auto, Mapping) else None
    if not isinstance(auto, Mapping) or not isinstance(pools, Mapping) or not isinstance(listed, Sequence):
        return
    among = [_text(item) for item in listed.items]
    for i, item in enumerate(listed.items):
        if (text := among[i]) is not None and text not in pools.entries:
            yield Problem(file, item.line, dotted(("auto", "pools", i)), quoted(text), "a pool of this file")
    default = auto.get("default")
    if default is not None and (text := _text(default)) is not None and text not in among:
        yield Problem(file, default.line, "auto.default", quoted(text), "one of auto.pools")


def _isolation(pool_id: str, pool: Node, root: Mapping, file: str) -> Iterator[Problem]:
    """Without tenants all salts are one, and nobody would be isolated."""
    tenants, isolation = root.get("tenants"), pool.get("isolation") if isinstance(pool, Mapping) else None
    salt = isolation.entries.get("cache_salt") if isinstance(isolation, Mapping) else None
    trusted = tenants.get("trusted") if isinstance(tenants, Mapping) else None
    if salt is not None and _text(salt[1]) == "tenant" and not (isinstance(trusted, Scalar) and trusted.value is True):
        path = ("pools", pool_id, "isolation", "cache_salt")
        yield Problem(file, salt[0], dotted(path), '"tenant", and no tenants', "tenant with tenants: {trusted: true}")


def _pins(root: Mapping, file: str) -> Iterator[Problem]:
    """What gateways share is under keys made with a secret: without a shared one, none would find another's."""
    sessions = root.get("sessions")
    if isinstance(sessions, Mapping) and "pins" in sessions.entries and "secret" not in sessions.entries:
        line, node = sessions.entries["pins"]
        if _text(node) != "memory":
            yield Problem(file, line, "sessions.pins", "a store, and no sessions.secret", "with sessions.secret")


def _names(pool_id: str, line: int, pool: Node) -> Iterator[Text]:
    """The model names that lead to a pool; the served one is its id when the file gives none."""
    if not isinstance(pool, Mapping):
        return
    served_line, served = pool.entries.get("served_name", (line, None))
    text = pool_id if served is None else _text(served)
    if text is not None:
        yield ("pools", pool_id) if served is None else ("pools", pool_id, "served_name"), served_line, text
    aliases = pool.get("aliases")
    if isinstance(aliases, Sequence):
        for i, item in enumerate(aliases.items):
            if (alias := _text(item)) is not None:
                yield ("pools", pool_id, "aliases", i), item.line, alias
    yield from _adapters(pool_id, pool)


def _adapters(pool_id: str, pool: Mapping) -> Iterator[Text]:
    """Each once, though several replicas of the pool may list it."""
    seen: set[str] = set()
    replicas = pool.get("replicas")
    for i, replica in enumerate(replicas.items if isinstance(replicas, Sequence) else ()):
        listed = replica.get("adapters") if isinstance(replica, Mapping) else None
        for j, item in enumerate(listed.items if isinstance(listed, Sequence) else ()):
            if (name := _text(item)) is not None and name not in seen:
                seen.add(name)
                yield ("pools", pool_id, "replicas", i, "adapters", j), item.line, name


def _replica_texts(pool_id: str, pool: Node, key: str) -> Iterator[Text]:
    replicas = pool.get("replicas") if isinstance(pool, Mapping) else None
    if isinstance(replicas, Sequence):
        for i, replica in enumerate(replicas.items):
            if isinstance(replica, Mapping) and key in replica.entries:
                line, node = replica.entries[key]
                if (text := _text(node)) is not None:
                    yield ("pools", pool_id, "replicas", i, key), line, text


def _replica_ids(pool_id: str, pool: Node) -> Iterator[Text]:
    """One with several data-parallel ranks is as many replicas, ID-0 and so on."""
    for path, line, text in _replica_texts(pool_id, pool, "id"):
        _, size = locate(pool, (*path[2:-1], "dp_size"))
        ranks = min(size.value, MAX_RANKS) if isinstance(size, Scalar) and isinstance(size.value, int) else 1
        yield from ((path, line, ranked(text, rank)) for rank in (None, *(range(ranks) if ranks > 1 else ())))


def _no_replicas(pool_id: str, line: int, pool: Node, file: str) -> Iterator[Problem]:
    """A pool without replicas is a mistake, unless they come from elsewhere."""
    if isinstance(pool, Mapping) and "discovery" not in pool.entries:
        at, replicas = pool.entries.get("replicas", (line, None))
        if replicas is None or (isinstance(replicas, Sequence) and not replicas.items):
            found = "nothing" if replicas is None else replicas.found
            yield Problem(file, at, dotted(("pools", pool_id, "replicas")), found, "1 to 1000 replicas, or discovery")


def _text(node: Node | None) -> str | None:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def _address(text: str | None) -> Address | None:
    """In one spelling, since names are the same in capitals and with a final dot. None when it is no address."""
    try:
        address = EngineAddress.parse(text or "")
    except ValueError:
        return None
    return Address(address.host.lower().rstrip("."), address.port)
