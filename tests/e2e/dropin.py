"""Pastes homing's fragments into an Envoy configuration that exists, and takes them out again.

Does what the comments `# Goes into ...` say and nothing else: where a comment changes, this has to change with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import yaml

Tree = dict[str, Any]
HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
HEAD = re.compile(r"# fragment (\S+) \((homing \S+ [0-9a-f]{8})\)\n# Goes into (.+)\.\n")


@dataclass(frozen=True)
class Pasted:
    """One fragment as `homing render envoy` prints it: its name, version stamp, place, and what it says."""

    name: str
    stamp: str
    where: str
    value: Any


def read_fragments(text: str) -> dict[str, Pasted]:
    """The output of `homing render envoy --all-fragments`, by name."""
    found = {}
    for part in text.split("---\n"):
        head = HEAD.match(part)
        assert head is not None, part[:200]
        assert part.endswith(f"# end of fragment {head[1]}\n")
        found[head[1]] = Pasted(head[1], head[2], head[3], yaml.safe_load(part))
    return found


def read_envoy(text: str) -> Tree:
    """Anchors are written out: what is pasted at one place must not show up at another."""
    read: Tree = json.loads(json.dumps(yaml.safe_load(text)))
    return read


class Set:
    """A key that was set, replaced, or removed (`after` is MISSING)."""

    MISSING = object()

    def __init__(self, holder: Tree, key: str, after: Any) -> None:
        self._holder, self._key, self._after = holder, key, after
        self._before = holder.get(key, self.MISSING)
        self._put(after)

    def undo(self) -> None:
        assert self._holder.get(self._key, self.MISSING) == self._after
        self._put(self._before)

    def _put(self, value: Any) -> None:
        if value is self.MISSING:
            self._holder.pop(self._key, None)
        else:
            self._holder[self._key] = value


class Insert:
    """Items that were put into a list."""

    def __init__(self, items: list[Any], at: int, new: list[Any]) -> None:
        self._items, self._new = items, new
        items[at:at] = new

    def undo(self) -> None:
        for new in self._new:
            (index,) = (i for i, item in enumerate(self._items) if item is new)
            del self._items[index]


@dataclass
class DropIn:
    """A stranger's configuration under work. The models are served by one virtual host and the clusters `pools`."""

    envoy: Tree
    virtual_host: str
    pools: tuple[str, ...]
    _done: dict[str, list[Set | Insert]] = field(default_factory=dict)

    def apply(self, fragment: Pasted) -> None:
        place = next((p for pattern, p in PLACES.items() if re.fullmatch(pattern, fragment.where)), None)
        assert place is not None, f"nobody told this tool how to paste into {fragment.where!r}"
        self._done[fragment.name] = list(place(self, fragment))

    def remove(self, name: str) -> None:
        for change in reversed(self._done.pop(name)):
            change.undo()

    def text(self) -> str:
        return yaml.safe_dump(self.envoy, sort_keys=False, width=1000)

    def listener(self, pasted: Pasted) -> Iterator[Set | Insert]:
        listener, _, _ = self._serving()
        for key, value in pasted.value.items():
            if listener.get(key, value + 1) > value:
                yield Set(listener, key, value)

    def connection_manager(self, pasted: Pasted) -> Iterator[Set | Insert]:
        _, manager, _ = self._serving()
        assert pasted.value.keys() == {"access_log", "local_reply_config"}
        if "access_log" in manager:
            yield Insert(manager["access_log"], len(manager["access_log"]), pasted.value["access_log"])
        else:
            yield Set(manager, "access_log", pasted.value["access_log"])
        if "local_reply_config" in manager:
            assert pasted.value["local_reply_config"].keys() == {"mappers"}
            yield Insert(manager["local_reply_config"]["mappers"], 0, pasted.value["local_reply_config"]["mappers"])
        else:
            yield Set(manager, "local_reply_config", pasted.value["local_reply_config"])

    def http_filters(self, pasted: Pasted) -> Iterator[Set | Insert]:
        _, manager, _ = self._serving()
        assert manager["http_filters"][-1]["typed_config"]["@type"].endswith(".Router")
        yield Insert(manager["http_filters"], len(manager["http_filters"]) - 1, pasted.value)

    def models_host(self, pasted: Pasted) -> Iterator[Set | Insert]:
        _, _, host = self._serving()
        for key, value in pasted.value.items():
            if key == "response_headers_to_add" and key in host:
                yield Insert(host[key], len(host[key]), value)
            elif key == "typed_per_filter_config" and key in host:
                for name, config in value.items():
                    assert name not in host[key]
                    yield Set(host[key], name, config)
            else:
                yield Set(host, key, value)

    def route(self, pasted: Pasted) -> Iterator[Set | Insert]:
        _, _, host = self._serving()
        for route in filter(self._leads_to_a_pool, host["routes"]):
            for key, value in pasted.value.items():
                assert key in ("timeout", "idle_timeout")
                yield Set(route["route"], key, value)

    def isolated_routes(self, pasted: Pasted) -> Iterator[Set | Insert]:
        """All of them here: the test's file isolates every pool."""
        _, _, host = self._serving()
        assert pasted.value.keys() == {"typed_per_filter_config"}
        for route in filter(self._leads_to_a_pool, host["routes"]):
            filters = route.get("typed_per_filter_config", {})
            yield Set(route, "typed_per_filter_config", {**filters, **pasted.value["typed_per_filter_config"]})

    def routes(self, pasted: Pasted) -> Iterator[Set | Insert]:
        _, _, host = self._serving()
        others = [route for route in host["routes"] if not self._leads_to_a_pool(route)]
        yield Set(host, "routes", others + pasted.value)

    def clusters(self, pasted: Pasted) -> Iterator[Set | Insert]:
        clusters = self.envoy["static_resources"]["clusters"]
        assert not {c["name"] for c in clusters} & {c["name"] for c in pasted.value}
        yield Insert(clusters, len(clusters), pasted.value)

    def pool(self, pasted: Pasted) -> Iterator[Set | Insert]:
        where = re.fullmatch(POOL, pasted.where)
        assert where is not None
        (cluster,) = (c for c in self.envoy["static_resources"]["clusters"] if c["name"] == where[1])
        for key in [key for key in cluster if any(fnmatch(key, pattern) for pattern in where[2].split(", "))]:
            yield Set(cluster, key, Set.MISSING)
        for key, value in pasted.value.items():
            yield Set(cluster, key, value)

    def _serving(self) -> tuple[Tree, Tree, Tree]:
        """The listener, the HttpConnectionManager and the virtual host of the models."""
        ((listener, manager, host),) = (
            (listener, manager["typed_config"], host)
            for listener in self.envoy["static_resources"]["listeners"]
            for chain in listener["filter_chains"]
            for manager in chain["filters"]
            if manager["typed_config"]["@type"].endswith(HCM)
            for host in manager["typed_config"]["route_config"]["virtual_hosts"]
            if host["name"] == self.virtual_host
        )
        return listener, manager, host

    def _leads_to_a_pool(self, route: Tree) -> bool:
        return route.get("route", {}).get("cluster") in self.pools


POOL = r'the cluster "(.+)": replace the keys that stand here; remove (.+)'

PLACES: dict[str, Callable[[DropIn, Pasted], Iterator[Set | Insert]]] = {
    "the listener of the models: add the key, or keep a limit of its own that is smaller": DropIn.listener,
    "the HttpConnectionManager of the models: add the keys; to an access_log append;"
    " into a local_reply_config put the mappers first": DropIn.connection_manager,
    "the http_filters of the HttpConnectionManager of the models: insert before the router": DropIn.http_filters,
    "the virtual host of the models: add the keys; to response_headers_to_add and typed_per_filter_config append,"
    " other keys that stand there replace": DropIn.models_host,
    "the `route:` of each route that leads to a pool: add the keys, replace timeout and idle_timeout": DropIn.route,
    "each route that leads to a pool with isolation: add the key, merge with what stands there": DropIn.isolated_routes,
    "the routes of the virtual host of the models: replace those that lead to a pool, append to all others": (
        DropIn.routes
    ),
    "static_resources.clusters: append": DropIn.clusters,
    POOL: DropIn.pool,
}
"""By the words of the comment, as a regular expression."""
