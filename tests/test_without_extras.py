"""What a fresh environment runs, which has the runtime's dependencies alone, as that of `make demo`."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = ("cryptography", "dns", "docker", "lightkube", "redis", "tokenizers", "zmq")


@pytest.mark.parametrize(
    "module", ["homing.control.process", "homing.ext_proc.process", "homing.cli.main", "homing.sim"]
)
def test_no_extra_is_needed_before_the_file_names_one(module: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); import {module}"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
