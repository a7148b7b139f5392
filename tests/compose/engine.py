"""Compose projects for tests, in a real Docker engine: each has a name of its own, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

TOP = Path(__file__).parents[2]
FILES = TOP / "compose"
LABEL = "homing.test"
CANARY = "index-of-a-test.invalid"
"""Of an index for packages, which must not be in the image."""
SECRET = "of-a-test-long-enough"
HEALTHY_S = 240.0
EVERY_S = 0.5
"""Each look is a process of Docker's."""
COMPOSE = ("docker-compose",)


def docker(*arguments: str, timeout_s: float = 60.0) -> str:
    """The output of a `docker` command that must succeed."""
    done = subprocess.run(("docker", *arguments), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def reachable() -> bool:
    try:
        return subprocess.run(("docker", "info"), capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def until(condition: Callable[[], bool], what: str, timeout_s: float = HEALTHY_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(EVERY_S)


@dataclass(frozen=True)
class Project:
    """A running Compose project. `env` is what its files are filled in with."""

    files: Sequence[Path]
    env: Mapping[str, str]
    name: str = field(default_factory=lambda: f"{LABEL.replace('.', '-')}-{uuid4().hex[:8]}")

    def environment(self) -> dict[str, str]:
        """For commands about it; `compose/roll` reads the same."""
        files = os.pathsep.join(map(str, self.files))
        fixed = {"COMPOSE_FILE": files, "COMPOSE_PROJECT_NAME": self.name, "COMPOSE": " ".join(COMPOSE)}
        return {**os.environ, "HOMING_HEALTH_EVERY": "3s", "HOMING_SECRET": SECRET, **fixed, **self.env}

    def run(self, *argv: str, timeout_s: float = 120.0) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            argv, env=self.environment(), cwd=TOP, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def inside(self, service: str, *argv: str) -> str:
        """The output of a command in its only container."""
        return docker("exec", self.container(service), *argv)

    def compose(self, *arguments: str, timeout_s: float = 120.0) -> str:
        return self.run(*COMPOSE, *arguments, timeout_s=timeout_s)

    def roll(self, *services: str, deadline: str = "1s") -> None:
        self.run("env", f"DEADLINE={deadline}", str(FILES / "roll"), *services, timeout_s=600.0)

    def containers(self, service: str = "") -> list[str]:
        labels = {"com.docker.compose.project": self.name} | (
            {"com.docker.compose.service": service} if service else {}
        )
        filters = [argument for k, v in labels.items() for argument in ("--filter", f"label={k}={v}")]
        return docker("ps", "--all", "--quiet", *filters).split()

    def container(self, service: str) -> str:
        (only,) = self.containers(service)
        return only

    def inspect(self, container: str) -> dict[str, object]:
        (found,) = json.loads(docker("inspect", container))
        return found

    def healthy(self, containers: Sequence[str]) -> bool:
        """Those that have a health check, and were not to end at once."""
        form = "{{if .State.Health}}{{.State.Health.Status}}{{end}}"
        return set(docker("inspect", "--format", form, *containers).split()) == {"healthy"}

    def until_healthy(self, *services: str) -> None:
        """All of them where none is named."""
        waited = [c for service in services for c in self.containers(service)] if services else self.containers()
        until(lambda: self.healthy(waited), f"{services or 'all'} to be healthy")

    def address(self, service: str, network: str) -> str:
        form = f'{{{{(index .NetworkSettings.Networks "{self.name}_{network}").IPAddress}}}}'
        return docker("inspect", "--format", form, self.container(service))

    def process(self, service: str) -> int:
        """The id of its first process, on this machine."""
        return int(docker("inspect", "--format", "{{.State.Pid}}", self.container(service)))

    def down(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1")
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        filters = ("--quiet", "--filter", f"label=com.docker.compose.project={self.name}")
        assert [docker(*kind, *filters) for kind in kinds] == ["", "", ""]


@contextmanager
def project(files: Sequence[Path], env: Mapping[str, str]) -> Iterator[Project]:
    """Started and healthy; nothing of it is left at the end."""
    started = Project(files, env)
    try:
        started.compose("up", "--detach", "--no-build", timeout_s=180.0)
        started.until_healthy()
        yield started
    finally:
        started.down()
