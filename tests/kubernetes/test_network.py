"""Who may reach whom: the policies as the API's documentation explains them, for pods as the manifests label them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.rendered import Tree, labels_of, named, of_kind, ports_of

POLICIES = tuple(each for folder in ("example", "vllm") for each in of_kind(folder, "NetworkPolicy"))


@dataclass(frozen=True)
class Pod:
    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]


def pod(folder: str, kind: str, name: str) -> Pod:
    workload = named(folder, kind, name)
    return Pod(workload["metadata"]["namespace"], labels_of(workload), ports_of(workload))


PODS = {
    "gateway": pod("example", "StatefulSet", "homing-gateway"),
    "control": pod("example", "StatefulSet", "homing-control"),
    "redis": pod("example", "Deployment", "homing-redis"),
    "engine": pod("vllm", "Deployment", "qwen"),
    "neighbour of engines": Pod("vllm", {"app": "notebook"}, {}),
    "neighbour of homing": Pod("homing", {"app": "debug"}, {}),
    "stranger": Pod("default", {"app.kubernetes.io/component": "gateway", "app.kubernetes.io/name": "homing"}, {}),
    "scraper": Pod("monitoring", {"app": "prometheus"}, {}),
}


def allowed(source: Pod, target: Pod, port: str) -> bool:
    applying = [each for each in POLICIES if each["metadata"]["namespace"] == target.namespace]
    applying = [each for each in applying if matches(each["spec"]["podSelector"], target.labels)]
    assert all(each["spec"]["policyTypes"] == ["Ingress"] for each in applying)
    return not applying or any(lets(rule, each, source, port) for each in applying for rule in rules(each))


def rules(policy: Tree) -> list[Tree]:
    return policy["spec"].get("ingress", [])  # type: ignore[no-any-return]


def lets(rule: Tree, policy: Tree, source: Pod, port: str) -> bool:
    to_port = "ports" not in rule or any(each["port"] == port for each in rule["ports"])
    return to_port and ("from" not in rule or any(is_peer(each, policy, source) for each in rule["from"]))


def is_peer(peer: Mapping[str, Any], policy: Tree, source: Pod) -> bool:
    assert peer.keys() <= {"namespaceSelector", "podSelector"}
    if "namespaceSelector" in peer:
        in_namespace = matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source.namespace})
    else:
        in_namespace = source.namespace == policy["metadata"]["namespace"]
    return in_namespace and matches(peer.get("podSelector", {}), source.labels)


def matches(selector: Tree, labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


REACHED_BY = {
    ("engine", "http"): {"gateway", "control"},
    ("engine", "kv-events"): {"gateway"},
    ("engine", "kv-replay"): {"gateway"},
    ("gateway", "http"): set(PODS),
    ("gateway", "picker-http"): {"control", "scraper"},
    ("gateway", "standby-http"): {"control", "scraper"},
    ("control", "xds"): {"gateway"},
    ("control", "api"): {"gateway", "engine", "scraper"},
    ("redis", "redis"): {"gateway", "control"},
}


@pytest.mark.parametrize(("target", "port"), REACHED_BY)
def test_a_port_is_reached_by_those_who_need_it_and_nobody_else(target: str, port: str) -> None:
    assert {name for name, source in PODS.items() if allowed(source, PODS[target], port)} == REACHED_BY[target, port]


def test_every_port_of_every_pod_is_thought_of() -> None:
    ports = {(name, port) for name, each in PODS.items() for port in each.ports}
    assert ports == set(REACHED_BY)


def test_every_policy_applies_to_a_pod_and_names_ports_that_it_has() -> None:
    for policy in POLICIES:
        targets = [
            each
            for each in PODS.values()
            if each.ports
            and each.namespace == policy["metadata"]["namespace"]
            and matches(policy["spec"]["podSelector"], each.labels)
        ]
        assert targets, policy["metadata"]["name"]
        named_ports = {each["port"] for rule in rules(policy) for each in rule["ports"]}
        assert all(named_ports <= each.ports.keys() for each in targets)
