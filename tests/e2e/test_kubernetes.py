"""The processes of `kubernetes/homing` as the manifests start them (arguments, environment, configuration), on this
machine: two control services, one gateway, Redis, simulated engines, and an HTTP server that lists endpoints."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from e2e.stack import HOMING, Processes, answers, free_ports, until
from kubernetes.rendered import Container, configuration, container
from kubernetes_api import api_server, endpoint, kubeconfig, slice_of
from redis_server import RedisServer

pytestmark = pytest.mark.e2e

CONTROLS = ("homing-control-0", "homing-control-1")
GATEWAY = "homing-gateway-0"
ENGINES = ("qwen-a", "qwen-b", "qwen-c")
MODEL = "Qwen/Qwen2.5-7B-Instruct"
SECRET = {"sessions": "s" * 32, "admin-token": "a" * 32, "fleet-token": "f" * 32}
READY_S = 120.0


@dataclass
class Cluster:
    """`ports` by the addresses that the manifests name; pods differ in their addresses there, here in their ports."""

    processes: Processes
    redis: RedisServer
    ports: Mapping[str, int]
    admin: int

    def start_pod(self, pod: str, *containers: Container) -> None:
        directory = self.processes.directory / pod
        for each in ("etc", "run", "state"):
            (directory / each).mkdir(parents=True)
        (directory / "etc" / "homing.yaml").write_text(self.here(pod, self.file()))
        for each in containers:
            self.start(pod, each)

    def start(self, pod: str, each: Container) -> None:
        secret = SECRET | {"redis": f"{self.redis.url}/0"}
        env = {
            name: pod if "fieldRef" in tree["valueFrom"] else secret[tree["valueFrom"]["secretKeyRef"]["key"]]
            for name, tree in each.env.items()
        }
        settings = [f"{name}={value}" for name, value in env.items()]
        args = [self.here(pod, arg) for arg in each.args]
        self.processes.start(f"{pod}-{each.tree['name']}", ("env", *settings, *HOMING, *args))

    def file(self) -> str:
        """With what a pod has and this machine has not: an account at the API server, an address of its own."""
        account = f"port: http, kubeconfig: {self.processes.directory / 'kubeconfig'}}}"
        text = configuration("homing").replace("port: http}", account)
        return f"{text}\nadmin: 127.0.0.1:{self.admin}\nexpose_decisions: true\n"

    def here(self, pod: str, text: str) -> str:
        directory = self.processes.directory / pod
        text = text.replace("$(POD_NAME)", pod).replace("/etc/homing", f"{directory}/etc")
        text = text.replace("/var/lib/homing", f"{directory}/state")
        # the gateway's: what the control services tell Envoy is said in its pod's terms
        text = text.replace("/run/homing", f"{self.processes.directory}/{GATEWAY}/run")
        text = text.replace("0.0.0.0:8080", f"0.0.0.0:{self.port(GATEWAY, 8080)}")
        for address, port in self.ports.items():
            host, _, number = address.partition(":")
            text = text.replace(address, f"127.0.0.1:{port}")
            if host.partition(".")[0] == pod:
                text = text.replace(f"0.0.0.0:{number}", f"0.0.0.0:{port}").replace(
                    f"127.0.0.1:{number}", f"127.0.0.1:{port}"
                )
        return text

    def port(self, pod: str, number: int) -> int:
        (found,) = (port for address, port in self.ports.items() if address.startswith(pod) and f":{number}" in address)
        return found

    def chat(self, session: str | None = None) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        url = f"http://127.0.0.1:{self.port(GATEWAY, 8080)}/v1/chat/completions"
        headers = {"x-session-id": session} if session else {}
        return httpx.post(url, json=body, headers=headers, timeout=10, trust_env=False)

    def begun(self, sessions: int = 12) -> dict[str, str]:
        """Session -> home, of new ones that a picker placed."""
        given = [self.chat() for _ in range(sessions)]
        assert {answer.status_code for answer in given} == {200}
        return {answer.headers["x-session-id"]: answer.headers["x-homing-replica"] for answer in given}

    def api(self, pod: str) -> str:
        return f"http://127.0.0.1:{self.port(pod, 8600)}"


def started(directory: Path, redis: RedisServer) -> Cluster:
    known = [f"{pod}.homing-controls:{port}" for pod in CONTROLS for port in (18000, 8600)]
    known += [f"{GATEWAY}.homing-gateways:{port}" for port in (8601, 8602, 8080)]
    known += [f"homing-gateway-1.homing-gateways:{port}" for port in (8601, 8602)]  # not there
    admin, *ports = free_ports(1 + len(known))
    return Cluster(Processes(directory), redis, dict(zip(known, ports, strict=True)), admin)


@pytest.fixture
async def cluster(short_directory: Path) -> AsyncIterator[Cluster]:
    directory = short_directory / "k8s"
    directory.mkdir()
    redis = RedisServer(directory / "redis").start()
    cluster = started(directory, redis)
    try:
        async with api_server() as api:
            (directory / "kubeconfig").write_text(kubeconfig(api.url))
            for name, port in zip(ENGINES, free_ports(len(ENGINES)), strict=True):
                where = ("--listen", f"127.0.0.1:{port}", "--id", name, "--model", MODEL)
                cluster.processes.start(name, (*HOMING, "sim", *where, "--ttft-ms", "1", "--itl-ms", "1"))
                serving = [{"name": "http", "port": port}]
                api.slices.append(slice_of(name, 5, endpoint(name, "127.0.0.1"), ports=serving))
            await asyncio.to_thread(start_all, cluster)
            yield cluster
    finally:
        cluster.processes.stop_all()
        redis.kill()


def start_all(cluster: Cluster) -> None:
    for pod in CONTROLS:
        cluster.start_pod(pod, container("homing", "homing-control/control"))
    parts = [container("homing", f"homing-gateway/{name}") for name in ("picker", "standby", "envoy")]
    cluster.start_pod(GATEWAY, *parts)
    for pod in CONTROLS:
        until(lambda pod=pod: answers(f"{cluster.api(pod)}/readyz"), READY_S, what=pod)
    until(lambda: answers(f"http://127.0.0.1:{cluster.port(GATEWAY, 8601)}/readyz"), READY_S, what="the picker")
    until(lambda: answers(f"http://127.0.0.1:{cluster.port(GATEWAY, 8080)}/v1/models"), READY_S, what="Envoy")
    until(lambda: set(cluster.begun().values()) == set(ENGINES), READY_S, what="sessions at all engines")
    until(lambda: cluster.chat().headers["x-homing-decision"] == "new", READY_S, what="the pickers in Envoy")


async def test_as_the_manifests_start_it_sessions_stick_engines_drain_and_a_control_service_may_go(
    cluster: Cluster,
) -> None:
    await asyncio.to_thread(what_is_promised, cluster)


def what_is_promised(cluster: Cluster) -> None:
    homes = cluster.begun()
    assert {s: cluster.chat(s).headers["x-homing-replica"] for s in homes} == homes
    roles = {httpx.get(f"{cluster.api(pod)}/api/control", trust_env=False).json()["role"] for pod in CONTROLS}
    assert roles == {"leading", "following"}

    refused = httpx.post(f"{cluster.api(CONTROLS[0])}/api/pools/qwen/replicas/qwen-a/drain", trust_env=False)
    assert refused.status_code == 401
    run_hook(cluster, "qwen-a")
    until(lambda: "qwen-a" not in cluster.begun().values(), what="the picker to hear of the drain")

    cluster.processes.kill(f"{CONTROLS[0]}-control")
    left = {session: home for session, home in homes.items() if home != "qwen-a"}
    assert {s: cluster.chat(s).headers["x-homing-replica"] for s in left} == left
    until(
        lambda: httpx.get(f"{cluster.api(CONTROLS[1])}/api/control", trust_env=False).json()["role"] == "leading",
        what="the other control service to lead",
    )
    assert "qwen-a" not in cluster.begun().values()


def run_hook(cluster: Cluster, pod: str) -> None:
    """As the engine's manifest has it, but patient for two seconds only: the test's sessions would keep it longer."""
    _, flag, script = container("vllm", "qwen/vllm").tree["lifecycle"]["preStop"]["exec"]["command"]
    script = script.replace("http://homing-control.homing:8600", cluster.api(CONTROLS[0]))
    script = script.replace("wait_s=600", "wait_s=2")
    env = os.environ | {"POD_NAME": pod, "HOMING_ADMIN_TOKEN": SECRET["admin-token"]}
    subprocess.run((sys.executable, flag, script), check=True, timeout=30, env=env)
