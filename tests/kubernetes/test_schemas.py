"""Every object is one that Kubernetes takes: its schema, with no field that it does not know."""

from __future__ import annotations

import kubernetes_validate
import pytest
from kubernetes.rendered import FOLDERS, ROOT, rendered

OLDEST = "1.29"
"""The first with sidecars (init containers with `restartPolicy: Always`) unless they are switched on."""
VERSIONS = (OLDEST, "1.33", kubernetes_validate.latest_version())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_is_valid(folder: str, version: str) -> None:
    for each in rendered(folder):
        kubernetes_validate.validate(each, version, strict=True)


def test_what_no_schema_knows_is_refused() -> None:
    (first, *_) = (each for each in rendered("homing") if each["kind"] == "StatefulSet")
    wrong = first | {"spec": first["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, OLDEST, strict=True)


def test_no_file_is_left_out() -> None:
    mentioned = "".join(file.read_text() for file in ROOT.rglob("kustomization.yaml"))
    files = {file.name for file in ROOT.rglob("*.yaml")} - {"kustomization.yaml"}
    assert [file for file in sorted(files) if file not in mentioned] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_object_stands_twice(folder: str) -> None:
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered(folder)]
    assert len(names) == len(set(names))
