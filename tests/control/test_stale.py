"""What of a running Envoy's configuration is not as this version writes it. The dumps are made of configurations; that
Envoy shows them so is tested in tests/e2e/test_upgrade.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from homing.control.envoy_config import Wiring, render_bootstrap
from homing.control.resources import canonical
from homing.control.stale import read_static, stale
from homing.core.config import Config, parse

FILE = """
expose_decisions: true
tenants: {header: x-tenant-id, trusted: true}
pools:
  p:
    aliases: [chat]
    isolation: {cache_salt: tenant}
    replicas: [{id: a, address: "10.0.0.1:80"}, {id: b, address: "10.0.0.2:80", weight: 2}]
  q: {hash: maglev, replicas: [{id: c, address: "vllm.internal:80"}]}
"""
ONE = Wiring(("unix:/run/a.sock",), "unix:/run/b.sock")
TWO = Wiring(("10.0.0.8:9002", "10.0.0.9:9002"))
Tree = dict[str, Any]


def config(text: str = FILE) -> Config:
    return parse(text, "homing.yaml")


def running(said: Config, wiring: Wiring = ONE) -> Tree:
    """What an Envoy has that was started with the whole configuration."""
    bootstrap: Tree = yaml.safe_load(render_bootstrap(said, said.fleet(), wiring))
    return bootstrap["static_resources"]  # type: ignore[no-any-return]


def manager(envoy: Tree) -> Tree:
    return envoy["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]  # type: ignore[no-any-return]


def host(envoy: Tree) -> Tree:
    return manager(envoy)["route_config"]["virtual_hosts"][0]  # type: ignore[no-any-return]


def cluster(envoy: Tree, name: str) -> Tree:
    (found,) = (each for each in envoy["clusters"] if each["name"] == name)
    return found  # type: ignore[no-any-return]


def dump(envoy: Tree) -> str:
    listeners = [{"listener": each} for each in envoy["listeners"]]
    clusters = [{"cluster": each} for each in envoy["clusters"]]
    return json.dumps({"configs": [{"@type": "x", "static_listeners": listeners}, {"static_clusters": clusters}]})


def found(envoy: Tree, text: str = FILE) -> list[tuple[str, str]]:
    """(fragment, what of it)."""
    said = config(text)
    lines = stale(said, said.fleet(), read_static(dump(envoy)), canonical)
    for line in lines:
        assert line.endswith(f"paste it again (homing render envoy --fragment {line.split()[1]})")
    return [(line.split()[1], line.partition("(")[2].partition(")")[0]) for line in lines]


@pytest.mark.parametrize("wiring", [ONE, TWO])
def test_the_whole_configuration_is_as_its_fragments(wiring: Wiring) -> None:
    assert found(running(config(), wiring)) == []


def test_defaults_and_other_spellings_are_no_difference() -> None:
    envoy = running(config())
    del cluster(envoy, "p")["circuit_breakers"]["thresholds"][0]["priority"]  # DEFAULT is the default
    host(envoy)["retry_policy"]["retry_back_off"] = {"base_interval": "0.0250s", "max_interval": "0.250s"}
    host(envoy)["request_body_buffer_limit"] = "67108864"
    assert found(envoy) == []


def test_what_is_not_ours_is_not_looked_at() -> None:
    envoy = running(config())
    manager(envoy)["http_filters"].insert(0, {"name": "own.auth", "typed_config": {"@type": "type.example/Own"}})
    manager(envoy)["access_log"].append({"name": "own", "typed_config": {"path": "/tmp/homing/access.log"}})
    host(envoy)["response_headers_to_add"].append({"header": {"key": "x-own", "value": "1"}})
    host(envoy)["typed_per_filter_config"]["own.auth"] = {"@type": "type.example/Own"}
    host(envoy)["routes"].insert(0, {"name": "own", "match": {"path": "/"}, "direct_response": {"status": 204}})
    cluster(envoy, "p")["outlier_detection"] = {"consecutive_5xx": 3}
    envoy["clusters"].append({"name": "own", "type": "example"})
    assert found(envoy) == []


def lua(envoy: Tree) -> None:
    peek = next(each for each in manager(envoy)["http_filters"] if each["name"] == "homing.peek")
    peek["typed_config"]["default_source_code"]["inline_string"] += "-- by hand"


def buffer_limit(envoy: Tree) -> None:
    host(envoy)["request_body_buffer_limit"] = 1024


def fewer_filters(envoy: Tree) -> None:
    host(envoy)["typed_per_filter_config"].pop("homing.strip")


def decisions_still_shown(envoy: Tree) -> None:
    host(envoy)["response_headers_to_add"].append({"header": {"key": "x-homing-old", "value": "1"}})


def error_type(envoy: Tree) -> None:
    manager(envoy)["local_reply_config"]["mappers"][0]["body_format_override"]["json_format"]["error"]["type"] = "x"


def route_timeout(envoy: Tree) -> None:
    next(each for each in host(envoy)["routes"] if each["name"] == "q")["route"]["timeout"] = "15s"


def probe(envoy: Tree) -> None:
    cluster(envoy, "homing-pickers")["health_checks"][0]["interval"] = "5s"


def hash_of_q(envoy: Tree) -> None:
    cluster(envoy, "q")["load_balancing_policy"] = cluster(envoy, "p")["load_balancing_policy"]


@pytest.mark.parametrize(
    ("change", "fragment", "what"),
    [
        (lua, "http-filters", "homing.peek"),
        (buffer_limit, "virtual-host", "request_body_buffer_limit"),
        (fewer_filters, "virtual-host", "typed_per_filter_config"),
        (decisions_still_shown, "virtual-host", "response_headers_to_add"),
        (error_type, "http-connection-manager", "local_reply_config"),
        (route_timeout, "routes", "q"),
        (probe, "pickers", "health_checks"),
        (hash_of_q, "cluster:q", "load_balancing_policy"),
    ],
)
def test_what_differs_is_named(change: Callable[[Tree], None], fragment: str, what: str) -> None:
    envoy = running(config())
    change(envoy)
    assert found(envoy) == [(fragment, what)]


def test_a_file_that_has_changed_since_the_pasting_makes_its_fragments_stale() -> None:
    now = FILE.replace("expose_decisions: true", "expose_decisions: false").replace("[chat]", "[chat, gpt-4o]")
    assert found(running(config()), now) == [
        ("http-filters", "homing.peek"),
        ("virtual-host", "response_headers_to_add"),
        ("routes", "models, p, unknown_model, no_model"),
    ]


def test_fragments_that_may_be_left_out_are_not_missed() -> None:
    envoy = running(config())
    del manager(envoy)["access_log"], manager(envoy)["local_reply_config"]
    host(envoy)["routes"] = [{"match": {"prefix": "/"}, "route": {"cluster": "p"}}]
    assert found(envoy) == []


def test_what_came_by_xds_was_not_pasted() -> None:
    envoy = running(config())
    lua(envoy)
    assert stale(config(), config().fleet(), read_static(json.dumps({"configs": [envoy]})), canonical) == ()
