"""What the control service may ask Kubernetes is what its discovery asks, and about the service that there is."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from kubernetes.rendered import configuration, labels_of, named, of_kind, pod_of, ports_of
from kubernetes_api import api_server, endpoint, kubeconfig, slice_of

from homing.control.discovery.kubernetes import KubernetesSource
from homing.core.config import Kubernetes, parse

COLLECTION = re.compile(r"/apis/(?P<group>[^/]+)/[^/]+/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^/]+)")


def discovered() -> Kubernetes:
    (pool,) = parse(configuration("homing"), "homing.yaml").pools
    assert pool.discovery is not None
    assert pool.discovery.kubernetes is not None
    return pool.discovery.kubernetes


async def asked(settings: Kubernetes, directory: Path) -> set[tuple[str, str, str, str]]:
    """(group, resource, namespace, verb) of every request that the discovery makes."""
    async with api_server() as api:
        api.slices = [slice_of("s1", 5, endpoint("qwen-0", "10.1.0.1"))]
        file = directory / "kubeconfig"
        file.write_text(kubeconfig(api.url))
        settings = settings.model_copy(update={"kubeconfig": str(file)})
        following = KubernetesSource(settings).follow()
        async with asyncio.timeout(5):
            await anext(following)
            watching = asyncio.ensure_future(anext(following))
            await api.watched.wait()
            api.push("MODIFIED", slice_of("s1", 6))
            await watching
        await following.aclose()
    found = ((verb, COLLECTION.fullmatch(path)) for verb, path in api.paths)
    return {(at["group"], at["resource"], at["namespace"], verb) for verb, at in found if at is not None}


async def test_the_role_allows_what_the_discovery_asks_and_nothing_else(tmp_path: Path) -> None:
    (role,) = of_kind("vllm", "Role")
    (rule,) = role["rules"]
    assert rule.keys() == {"apiGroups", "resources", "verbs"}
    allowed = {
        (group, resource, role["metadata"]["namespace"], verb)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == await asked(discovered(), tmp_path)


def test_the_role_is_bound_to_the_control_service_alone() -> None:
    (binding,) = of_kind("vllm", "RoleBinding")
    control = named("homing", "StatefulSet", "homing-control")
    account = {
        "kind": "ServiceAccount",
        "name": pod_of(control)["serviceAccountName"],
        "namespace": control["metadata"]["namespace"],
    }
    assert binding["subjects"] == [account]
    assert binding["roleRef"]["name"] == of_kind("vllm", "Role")[0]["metadata"]["name"]
    assert named("homing", "ServiceAccount", account["name"])["metadata"]["namespace"] == account["namespace"]


@pytest.mark.parametrize("kind", ["ClusterRole", "ClusterRoleBinding", "Secret"])
def test_there_is_no(kind: str) -> None:
    assert [each for folder in ("example", "vllm", "existing-envoy") for each in of_kind(folder, kind)] == []


def test_the_service_that_is_discovered_leads_to_the_engines() -> None:
    settings = discovered()
    service = named("vllm", "Service", settings.service)
    engines = named("vllm", "Deployment", "qwen")
    assert service["metadata"]["namespace"] == settings.namespace
    assert service["spec"]["selector"].items() <= labels_of(engines).items()
    (port,) = (each for each in service["spec"]["ports"] if each["name"] == settings.port)
    assert ports_of(engines)[port["targetPort"]] == port["port"]
