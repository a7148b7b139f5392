"""What `homing up` refuses before anything is started: exit code 2, a line each on stderr."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homing.cli.up import command

FILE = """
listen: 127.0.0.1:{listen}
admin: 127.0.0.1:{admin}
xds: 127.0.0.1:{xds}
api: 127.0.0.1:{api}
pools:
  demo:
    replicas: [{{id: sim-0, address: 127.0.0.1:{replica}}}]
"""
KEYS = ("listen", "admin", "xds", "api", "replica")

Ports = dict[str, int]


@pytest.fixture
def ports() -> Ports:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in KEYS]
    free = {key: server.getsockname()[1] for key, server in zip(KEYS, servers, strict=True)}
    for server in servers:
        server.close()
    return free


@pytest.fixture
def file(ports: Ports, tmp_path: Path) -> str:
    path = tmp_path / "homing.yaml"
    path.write_text(FILE.format(**ports))
    return str(path)


@pytest.fixture
def taken(request: pytest.FixtureRequest, ports: Ports) -> Iterator[int]:
    """Something listens on the port of the key that the test names."""
    with socket.create_server(("127.0.0.1", ports[request.param])):
        yield ports[request.param]


def up(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def refused(*arguments: str) -> list[str]:
    result = up(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.splitlines()


@pytest.mark.parametrize(("taken", "key"), [(key, key) for key in KEYS[:4]], indirect=["taken"])
def test_a_port_in_use_is_named(taken: int, key: str, file: str) -> None:
    assert refused("-c", file) == [f"port {taken} ({key}) is in use"]


@pytest.mark.parametrize("taken", ["replica"], indirect=True)
def test_the_port_of_a_simulated_replica_is_checked_too(taken: int, file: str) -> None:
    assert refused("--demo", "-c", file) == [f"port {taken} (replica sim-0) is in use"]


def test_every_problem_of_the_file_is_told_with_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("lissten: 127.0.0.1:8080\npools:\n  a:\n    replicas: [{id: x, address: nowhere}]\n")
    first, second = refused("-c", str(path))
    assert first.startswith(f"{path}:1: lissten: ")
    assert second.startswith(f"{path}:4: pools.a.replicas[0].address: ")


def test_without_a_file_the_default_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = refused()
    assert line.startswith("homing.yaml: found no such file or directory")


def test_a_missing_envoy_is_named(file: str) -> None:
    assert refused("-c", file, "--envoy", "/no/such/envoy") == ["--envoy /no/such/envoy does not exist"]


@pytest.mark.parametrize("arguments", [("--replicas", "2"), ("--demo", "-c", "homing.yaml", "--replicas", "2")])
def test_a_number_of_replicas_goes_with_the_generated_demo_only(arguments: tuple[str, ...]) -> None:
    result = up(*arguments)
    assert result.exit_code == 2
    assert "--replicas is for --demo without -c" in result.stderr


@pytest.mark.parametrize("arguments", [("--demo", "--replicas", "0"), ("--pickers", "0"), ("--no-such-option",)])
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    assert up(*arguments).exit_code == 2
