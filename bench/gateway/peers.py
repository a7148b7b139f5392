"""The peers, from PyPI, in an environment of their own that is kept for the next time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PINNED = ("sglang-router==0.3.2", "vllm-router==0.1.17")


def installed(directory: Path, pinned: Sequence[str] = PINNED) -> Path:
    """The environment's `bin`, with the `pinned` in it. Raises CalledProcessError when it cannot be made."""
    ready, bin_ = directory / ".ready", directory / "bin"
    wanted = "\n".join(pinned)
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run((sys.executable, "-m", "venv", str(directory)), check=True)
        pip = (str(bin_ / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet")
        subprocess.run((*pip, "install", "--only-binary", ":all:", *pinned), check=True)
        ready.write_text(wanted)
    return bin_
