"""What `kubectl apply -k` would send, as kustomize renders it, and what of it the tests look for."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2] / "kubernetes"
FOLDERS = ("homing", "example", "vllm", "existing-envoy")
"""All that can be applied; the others are components of `example`."""
KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
"""Of the lock file, so that neither a machine's own nor its absence matters."""
Tree = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet")


@cache
def rendered(folder: str) -> tuple[Tree, ...]:
    argv = (KUBECTL, "kustomize", str(ROOT / folder))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(folder: str, *kinds: str) -> list[Tree]:
    return [each for each in rendered(folder) if each["kind"] in kinds]


def named(folder: str, kind: str, name: str) -> Tree:
    (found,) = (each for each in of_kind(folder, kind) if each["metadata"]["name"] == name)
    return found


@dataclass(frozen=True)
class Container:
    """`tree` as it stands in the pod of `workload`."""

    workload: Tree
    tree: Tree

    @property
    def name(self) -> str:
        return f"{self.workload['metadata']['name']}/{self.tree['name']}"

    @property
    def is_ours(self) -> bool:
        return str(self.tree["image"]).startswith("homing:")

    @property
    def args(self) -> list[str]:
        return [str(arg) for arg in self.tree.get("args", [])]

    @property
    def env(self) -> dict[str, Tree]:
        return {each["name"]: each for each in self.tree.get("env", [])}

    @property
    def ports(self) -> dict[str, int]:
        return {each["name"]: each["containerPort"] for each in self.tree.get("ports", [])}

    def option(self, name: str) -> list[str]:
        """The values of `--name=VALUE`."""
        return [arg.partition("=")[2] for arg in self.args if arg.startswith(f"--{name}=")]

    def port(self, port: int | str) -> int:
        return self.ports[port] if isinstance(port, str) else port


def pod_of(workload: Tree) -> Tree:
    spec: Tree = workload["spec"]["template"]["spec"]
    return spec


def labels_of(workload: Tree) -> Mapping[str, str]:
    labels: Mapping[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def containers(folder: str) -> Iterator[Container]:
    for workload in of_kind(folder, *WORKLOADS):
        pod = pod_of(workload)
        for tree in (*pod.get("initContainers", []), *pod["containers"]):
            yield Container(workload, tree)


def ours(folder: str) -> list[Container]:
    return [each for each in containers(folder) if each.is_ours]


def container(folder: str, name: str) -> Container:
    (found,) = (each for each in containers(folder) if each.name == name)
    return found


def ports_of(workload: Tree) -> dict[str, int]:
    pod = pod_of(workload)
    trees = (*pod.get("initContainers", []), *pod["containers"])
    return {name: port for tree in trees for name, port in Container(workload, tree).ports.items()}


def selected(folder: str, selector: Mapping[str, str], namespace: str) -> list[Tree]:
    """The workloads whose pods have all of these labels."""
    return [
        each
        for each in of_kind(folder, *WORKLOADS)
        if each["metadata"]["namespace"] == namespace and selector.items() <= labels_of(each).items()
    ]


def configuration(folder: str) -> str:
    text: str = named(folder, "ConfigMap", "homing")["data"]["homing.yaml"]
    return text


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return int(found[1])
