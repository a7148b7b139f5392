"""Starts real replicas, and ends them."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

START_TIMEOUT_S = 10


def wait_until_healthy(url: str) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=START_TIMEOUT_S) as client:
        assert client.get(f"{url}/health").status_code == 200


@dataclass(frozen=True)
class RunningSim:
    process: subprocess.Popen[str]
    url: str
    port: int
    admin_url: str | None = None

    def metric(self, name: str) -> float:
        """One sample of the replica's own metrics."""
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def restart(self, down_s: float = 0.0) -> None:
        """By the admin port; returns when it serves again."""
        assert self.admin_url is not None
        life = httpx.get(f"{self.admin_url}/status").json()["life"]
        httpx.post(f"{self.admin_url}/restart", json={"down_s": down_s})
        deadline = time.monotonic() + START_TIMEOUT_S
        while httpx.get(f"{self.admin_url}/status").json()["life"] == life:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        wait_until_healthy(self.url)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(5)


StartSim = Callable[..., RunningSim]


@contextmanager
def sims() -> Iterator[StartSim]:
    """Gives what starts replicas; ends them all at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> RunningSim:
        names = ["--listen", "127.0.0.1:0", "--id", "r1", "--model", "m"]
        process = subprocess.Popen(
            [sys.executable, "-m", "homing", "sim", *names, *flags], stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stderr is not None
        admin_url = None
        for line in process.stderr:
            if found := re.search(r"admin on ([\d.]+:\d+)", line):
                admin_url = f"http://{found[1]}"
            if found := re.search(r"serves .* on ([\d.]+):(\d+)", line):
                url = f"http://{found[1]}:{found[2]}"
                wait_until_healthy(url)
                return RunningSim(process, url, int(found[2]), admin_url)
        raise AssertionError(f"the replica ended with {process.wait()}")

    try:
        yield start
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(5)
            finally:
                process.kill()
                if process.stderr is not None:
                    process.stderr.close()


@pytest.fixture
def start_sim() -> Iterator[StartSim]:
    """`start_sim("--flag", "value", ...)` gives a replica that listens on a port of its own."""
    with sims() as start:
        yield start


@pytest.fixture(scope="module")
def module_sims() -> Iterator[StartSim]:
    """The same, for replicas that the tests of a module share."""
    with sims() as start:
        yield start


@pytest.fixture(scope="module")
def quick_sim(module_sims: StartSim) -> RunningSim:
    """For tests that leave nothing behind but a warm cache: it answers at once."""
    return module_sims("--ttft-ms", "1", "--itl-ms", "0")
