"""`homing check --envoy-admin` against a real Envoy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from e2e.stack import HOMING, StaticStack

pytestmark = pytest.mark.e2e


def check(file: Path, admin: int) -> tuple[int, list[str]]:
    argv = (*HOMING, "check", "-c", str(file), "--envoy-admin", f"127.0.0.1:{admin}")
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    return ended.returncode, [line.strip() for line in ended.stdout.splitlines() if "differs" in line]


def test_an_envoy_of_the_same_file_does_not_differ_and_one_of_another_does(one_pool: StaticStack) -> None:
    assert check(one_pool.file, one_pool.admin) == (0, [])
    other = one_pool.processes.directory / "other.yaml"
    first, second = (f"127.0.0.1:{one_pool.replica_ports[r]}" for r in ("only-0", "only-1"))
    text = one_pool.file.read_text()
    other.write_text(text.replace(first, "127.0.0.1:1").replace('"only-1"', '"renamed"'))
    assert check(other, one_pool.admin) == (
        1,
        [
            f"Envoy differs: pool only, replica only-0: at {first} in Envoy, at 127.0.0.1:1 in the file",
            "Envoy differs: pool only, replica renamed: has the hash key only-1 in Envoy; sessions would not come home"
            " by the hash",
        ],
    )
    assert second in text
