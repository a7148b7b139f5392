"""The pods are as Kubernetes' Pod Security Standard `restricted` wants them, and more; disruptions are bounded."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.rendered import WORKLOADS, Container, containers, labels_of, named, of_kind, ours, pod_of, selected

OWN = ("example", "vllm")
EVERY = [pytest.param(each, id=each.name) for folder in OWN for each in containers(folder)] + [
    pytest.param(each, id=each.name) for each in ours("existing-envoy")
]
WORKLOAD = [pytest.param(f, each, id=each["metadata"]["name"]) for f in OWN for each in of_kind(f, *WORKLOADS)]


@pytest.mark.parametrize("container", EVERY)
def test_a_container_may_nothing(container: Container) -> None:
    # what the pod says and the container does not say otherwise
    context = {**pod_of(container.workload).get("securityContext", {}), **container.tree["securityContext"]}
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in context


@pytest.mark.parametrize("container", EVERY)
def test_a_container_asks_for_what_it_needs(container: Container) -> None:
    resources = container.tree["resources"]
    assert resources["requests"].keys() >= {"cpu", "memory"}
    assert "memory" in resources["limits"]
    assert "cpu" not in resources["limits"]  # throttled, it would be slow where it need not be
    assert ":latest" not in container.tree["image"]
    assert ":" in container.tree["image"]


@pytest.mark.parametrize("container", EVERY)
def test_what_a_container_writes_to_is_bounded(container: Container) -> None:
    volumes = {each["name"]: each for each in pod_of(container.workload)["volumes"]}
    for mount in container.tree["volumeMounts"]:
        volume = volumes[mount["name"]]
        assert mount.get("readOnly") or volume["emptyDir"]["sizeLimit"]
        assert volume.keys() - {"name"} <= {"emptyDir", "configMap"}


@pytest.mark.parametrize(("folder", "workload"), WORKLOAD)
def test_a_pod_shares_nothing_with_its_node_and_gets_a_token_only_to_discover(
    folder: str, workload: dict[str, Any]
) -> None:
    pod = pod_of(workload)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    is_control = workload["metadata"]["name"] == "homing-control"
    assert pod["automountServiceAccountToken"] is is_control


@pytest.mark.parametrize(("folder", "workload"), WORKLOAD)
def test_disruptions_are_bounded_and_replicas_spread(folder: str, workload: dict[str, Any]) -> None:
    if workload["spec"].get("replicas", 2) == 1:
        return  # the Redis to begin with
    budgets = [
        each["spec"]
        for each in of_kind(folder, "PodDisruptionBudget")
        if workload in selected(folder, each["spec"]["selector"]["matchLabels"], each["metadata"]["namespace"])
    ]
    assert [{key: spec[key] for key in spec if key != "selector"} for spec in budgets] in (
        [{"minAvailable": 1}],
        [{"maxUnavailable": 1}],
    )
    (spread,) = pod_of(workload)["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"]["matchLabels"].items() <= labels_of(workload).items()


@pytest.mark.parametrize("folder", OWN)
def test_the_namespaces_enforce_it(folder: str) -> None:
    namespace = "homing" if folder == "example" else folder
    labels = named(folder, "Namespace", namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
