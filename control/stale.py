"""Which fragments a running Envoy has otherwise than this version writes them: pasted by a former one, pasted before
the file changed, or changed by hand. Pure.

A fragment's stamp is a comment, which a running Envoy does not have; so the contents are compared, as Envoy shows them
in /config_dump. A fragment that two versions write alike is not stale. What comes to Envoy by xDS was not pasted, and
the replicas are `drift`'s. Optional fragments count where they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
import yaml

from homing.control.envoy_config import Json, Wiring, fragments, render_fragment
from homing.core.config import Config
from homing.core.fleet import Fleet

Tree = Mapping[str, Json]
Canonical = Callable[[str, Tree], Tree]
"""A tree of Envoy's type of that name (Cluster, HttpConnectionManager, RouteAction, ...) without defaults and in one
spelling: `control.resources.canonical`."""

HCM = "HttpConnectionManager"
MARK = "homing"
OURS_AMONG_OTHERS = ("response_headers_to_add", "access_log", "mappers")
"""Lists to which a fragment appends."""


@dataclass(frozen=True, slots=True)
class Static:
    """What an Envoy was started with."""

    managers: tuple[Tree, ...]
    virtual_hosts: tuple[Tree, ...]
    clusters: Mapping[str, Tree]


def read_static(dump: str) -> Static:
    """Raises msgspec.DecodeError."""
    configs = msgspec.json.decode(dump, type=_Dump).configs
    managers = tuple(m for c in configs for each in c.static_listeners for m in _managers(cast("Tree", each.listener)))
    inline = [m["route_config"] for m in managers if "route_config" in m]
    hosts = tuple(h for each in inline for h in _trees(cast("Tree", each).get("virtual_hosts")))
    clusters = {str(each.cluster["name"]): cast("Tree", each.cluster) for c in configs for each in c.static_clusters}
    return Static(managers, hosts, clusters)


def stale(config: Config, fleet: Fleet, running: Static, canonical: Canonical) -> tuple[str, ...]:
    """One line for each stale fragment: what of it differs, and what to do."""
    lines = []
    pickers = running.clusters.get("homing-pickers")
    wiring = _wiring(pickers) if pickers is not None else Wiring(("unix:/",))
    for fragment in fragments(config, fleet):
        wanted = yaml.safe_load(render_fragment(fragment, config, fleet, wiring))
        place = PLACES.get(fragment.name.partition(":")[0])
        if place is None:
            continue
        for differing in _differing(place(wanted, running, fragment.pool), canonical):
            said = ", ".join(differing)
            lines.append(
                f"fragment {fragment.name} is not as this version writes it ({said}): paste it again"
                f" (homing render envoy --fragment {fragment.name})"
            )
            break  # one line, however many virtual hosts have it
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same place in the fragment and in Envoy, as trees of Envoy's type `type`; `names` of what is compared by
    itself, and what each consists of."""

    type: str
    wanted: Mapping[str, Tree]
    found: Mapping[str, Tree]


def _differing(pairs: Iterable[Pair], canonical: Canonical) -> Iterator[list[str]]:
    for pair in pairs:
        differing = [
            name
            for name, wanted in pair.wanted.items()
            if canonical(pair.type, wanted) != canonical(pair.type, pair.found.get(name, {}))
        ]
        if differing:
            yield differing


def _filters(wanted: Sequence[Tree], running: Static, _: str | None) -> Iterator[Pair]:
    """Filter by filter. Where they are missing altogether, `drift` says so."""
    for manager in running.managers:
        found = _by_name(_trees(manager.get("http_filters")))
        if any(name in found for name in _by_name(wanted)):
            yield _listed(HCM, "http_filters", wanted, found)


def _connection_manager(wanted: Tree, running: Static, _: str | None) -> Iterator[Pair]:
    for manager in running.managers:
        found = _part_of(wanted, manager)
        replies = cast("Tree", found["local_reply_config"])
        if found["access_log"] or replies["mappers"]:
            yield _by_key(HCM, wanted, found)


def _virtual_host(wanted: Tree, running: Static, _: str | None) -> Iterator[Pair]:
    for host in _enabled(running):
        yield _by_key("VirtualHost", wanted, _part_of(wanted, host))


def _routes(wanted: Sequence[Tree], running: Static, _: str | None) -> Iterator[Pair]:
    for host in _enabled(running):
        found = _by_name(_trees(host.get("routes")))
        if "unknown_model" in found and MARK in json.dumps(found["unknown_model"]):
            yield _listed("VirtualHost", "routes", wanted, found)


def _pickers(wanted: Sequence[Tree], running: Static, _: str | None) -> Iterator[Pair]:
    yield from _cluster(wanted[0], running, "homing-pickers")


def _cluster(wanted: Tree, running: Static, pool: str | None) -> Iterator[Pair]:
    """Without its endpoints. A cluster that does not exist is told by `drift`."""
    if (found := running.clusters.get(pool or "")) is not None:
        wanted = {key: value for key, value in wanted.items() if key != "load_assignment"}
        yield _by_key("Cluster", wanted, _part_of(wanted, found))


PLACES: Mapping[str, Callable[..., Iterator[Pair]]] = {
    "http-connection-manager": _connection_manager,
    "http-filters": _filters,
    "virtual-host": _virtual_host,
    "routes": _routes,
    "pickers": _pickers,
    "cluster": _cluster,
}
"""By the fragment's name. `listener`, `route` and `isolation` are a key or two that may be the user's own."""


def _enabled(running: Static) -> Iterator[Tree]:
    """The virtual hosts that have the fragment, of whatever version."""
    for host in running.virtual_hosts:
        if MARK in cast("Tree", host.get("typed_per_filter_config", {})):
            yield host


def _part_of(wanted: Tree, found: Tree) -> Tree:
    """Of what Envoy has, the keys of the fragment; of lists to which it appends, what is ours."""
    part: dict[str, Json] = {}
    for key, value in wanted.items():
        there = found.get(key)
        if key in OURS_AMONG_OTHERS:
            part[key] = [each for each in _trees(there) if each in _trees(value) or _is_ours(each)]
        elif key == "local_reply_config":
            part[key] = _part_of(cast("Tree", value), cast("Tree", there or {}))
        elif key == "typed_per_filter_config":
            ours = cast("Tree", there or {}).items()
            part[key] = {name: each for name, each in ours if name == MARK or name.startswith(f"{MARK}.")}
        elif there is not None:
            part[key] = there
    return part


def _is_ours(item: Tree) -> bool:
    """By its name, by the metadata that only our filters write, or by the headers that only they set."""
    text = json.dumps(item)
    marks = ('"filter": "homing"', '"key": "x-homing-', "%REQ(X-HOMING-")
    return str(item.get("name")).startswith(f"{MARK}.") or any(mark in text for mark in marks)


def _by_key(type_: str, wanted: Tree, found: Tree) -> Pair:
    return Pair(
        type_,
        {key: {key: value} for key, value in wanted.items()},
        {key: {key: value} for key, value in found.items()},
    )


def _listed(type_: str, key: str, wanted: Sequence[Tree], found: Mapping[str, Tree]) -> Pair:
    return Pair(
        type_,
        {name: {key: [each]} for name, each in _by_name(wanted).items()},
        {name: {key: [each]} for name, each in found.items()},
    )


def _by_name(trees: Iterable[Tree]) -> dict[str, Tree]:
    return {str(each.get("name")): each for each in trees}


def _trees(value: Json) -> list[Tree]:
    return cast("list[Tree]", value or [])


def _managers(listener: Tree) -> Iterator[Tree]:
    for chain in _trees(listener.get("filter_chains")):
        for each in _trees(chain.get("filters")):
            typed = cast("Tree", each.get("typed_config", {}))
            if str(typed.get("@type")).endswith(f".{HCM}"):
                yield typed


def _wiring(pickers: Tree) -> Wiring:
    """Where that Envoy looks for its pickers."""
    by_priority: dict[int, list[str]] = {}
    assignment = cast("Tree", pickers.get("load_assignment", {}))
    for group in _trees(assignment.get("endpoints")):
        for each in _trees(group.get("lb_endpoints")):
            address = cast("Tree", cast("Tree", each["endpoint"])["address"])
            by_priority.setdefault(int(str(group.get("priority", 0))), []).append(_picker_address(address))
    return Wiring(tuple(by_priority.get(0, ["unix:/"])), next(iter(by_priority.get(1, [])), None))


def _picker_address(address: Tree) -> str:
    if (pipe := address.get("pipe")) is not None:
        return f"unix:{cast('Tree', pipe)['path']}"
    at = cast("Tree", address["socket_address"])
    return f"{at['address']}:{at['port_value']}"


class _Listener(msgspec.Struct):
    listener: dict[str, object] = {}


class _Cluster(msgspec.Struct):
    cluster: dict[str, object] = {}


class _Config(msgspec.Struct):
    static_listeners: list[_Listener] = []
    static_clusters: list[_Cluster] = []


class _Dump(msgspec.Struct):
    configs: list[_Config]
