"""Starts the two engines on ports of their own, and ends them by their process ids."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.calibration.model import ModelFolder

BLOCK_SIZE = 128  # of vLLM on a CPU
BLOCKS = 480
MAX_MODEL_LEN = 8192
READY_S = 180.0
END_S = 30.0

# What both understand.
_FLAGS = (
    "--max-model-len", str(MAX_MODEL_LEN), "--block-size", str(BLOCK_SIZE), "--num-gpu-blocks-override", str(BLOCKS),
    "--max-num-seqs", "16", "--max-num-batched-tokens", "2048",
)  # fmt: skip

VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",
    "HF_HUB_OFFLINE": "1",
}


class EngineError(Exception):
    """An engine did not start. The message ends with its last words."""


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    events_port: int
    replay_port: int
    ready_s: float  # from start to the first good answer of /health


def vllm_command(python: Path, model: ModelFolder, names: Sequence[str], port: int, kv_events_config: str) -> list[str]:
    """A server of the environment that `python` belongs to, for `VLLM_ENVIRONMENT`."""
    return [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model.path), "--load-format", "dummy",
        "--served-model-name", *names, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
        "--enable-prompt-tokens-details", "--kv-events-config", kv_events_config, *_FLAGS,
    ]  # fmt: skip


def kv_events(endpoint: str, replay_endpoint: str) -> str:
    """vLLM's `--kv-events-config`."""
    return json.dumps(
        {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": endpoint,
            "replay_endpoint": replay_endpoint,
        }
    )


@contextlib.contextmanager
def vllm(python: Path, model: ModelFolder, name: str, logs: Path) -> Iterator[Running]:
    """A real one, of the environment that `python` belongs to. Raises EngineError."""
    port, events, replay = _free_ports(3)
    command = vllm_command(python, model, (name,), port, _on_ports(events, replay))
    with _process(command, os.environ | VLLM_ENVIRONMENT, logs / "vllm.log", f"http://127.0.0.1:{port}") as ready_s:
        yield Running(f"http://127.0.0.1:{port}", events, replay, ready_s)


@contextlib.contextmanager
def sim(model: ModelFolder, name: str, logs: Path) -> Iterator[Running]:
    """Raises EngineError."""
    port, events, replay = _free_ports(3)
    command = [
        sys.executable, "-m", "homing", "sim", "--listen", f"127.0.0.1:{port}", "--model", name,
        "--tokenizer", str(model.path), "--preset", "h100-llama-8b", "--speed", "4",
        "--kv-events-config", _on_ports(events, replay), *_FLAGS,
    ]  # fmt: skip
    with _process(command, dict(os.environ), logs / "sim.log", f"http://127.0.0.1:{port}") as ready_s:
        yield Running(f"http://127.0.0.1:{port}", events, replay, ready_s)


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str], log: Path, url: str) -> Iterator[float]:
    start_s = time.monotonic()
    with log.open("wb") as output:
        # A session of its own: what the engine starts can be ended with it, and Ctrl-C reaches it only through us.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_ready(process, url, log, start_s + READY_S)
        yield time.monotonic() - start_s
    finally:
        _end(process)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path, deadline_s: float) -> None:
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise EngineError(f"{process.args!r} is not ready; its last words:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind


def _on_ports(port: int, replay_port: int) -> str:
    return kv_events(f"tcp://*:{port}", f"tcp://*:{replay_port}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
