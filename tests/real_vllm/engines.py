"""Real vLLM engines of one tiny model, each with its processes in a group of its own, started at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
from e2e.stack import answers, free_ports, summed, until

from bench.calibration.engines import BLOCK_SIZE, MAX_MODEL_LEN, VLLM_ENVIRONMENT, kv_events, vllm_command
from bench.calibration.model import ModelFolder, make_model

READY_S = 600.0  # as long as vLLM itself waits; all at once on two idle cores take about 60 s
END_S = 20.0
MODEL, SALTED = "tiny", "tiny-salted"
"""Two names of the one model, for two pools of the same engines."""


class Tokenized(msgspec.Struct):
    tokens: list[int]


@dataclass
class Engine:
    id: str
    port: int
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    http: httpx.Client
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def until_ready(self) -> None:
        def ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
            return answers(f"http://127.0.0.1:{self.port}/health")

        until(ready, READY_S, f"engine {self.id}")

    def restart(self) -> None:
        self.start()
        self.until_ready()

    def kill(self) -> None:
        """-9 to all of its processes, as when its container is killed; they are gone when this returns."""
        self._end(self._shared_memory())

    def stop(self) -> None:
        self.http.close()
        if self._process is None:
            return
        shared = self._shared_memory()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._end(shared)

    def counter(self, name: str) -> float:
        return summed(self.http.get("/metrics").text, f"vllm:{name}_total", {})

    def tokens(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """The prompt that its template makes of a conversation."""
        body = {"model": MODEL, "messages": messages, "add_generation_prompt": True}
        answer = self.http.post("/tokenize", json=body).raise_for_status()
        return msgspec.json.decode(answer.content, type=Tokenized).tokens

    def _end(self, shared: set[Path]) -> None:
        """With what its processes had in common, which would outlive them: a container's /dev/shm goes with it."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

        def gone() -> bool:
            return all(self._state(pid) == "Z" for pid in self._group())

        until(gone, what=f"the processes of engine {self.id} to end")
        self._process.wait()
        self._process = None
        for path in shared:
            path.unlink(missing_ok=True)

    def _group(self) -> Iterator[int]:
        assert self._process is not None
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getpgid(pid) == self._process.pid:
                    yield pid

    @staticmethod
    def _state(pid: int) -> str:
        """`Z` also where it is gone."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        return "Z"

    def _shared_memory(self) -> set[Path]:
        """What its processes talk through."""
        found = set()
        for pid in self._group():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
                found |= {Path(line.split()[5]) for line in lines if "/dev/shm/psm_" in line and len(line.split()) == 6}
        return found


class _Details(msgspec.Struct):
    cached_tokens: int


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Details


class _Answer(msgspec.Struct):
    usage: _Usage


def cached(answer: httpx.Response) -> int:
    """Tokens of the prompt that the engine had in its cache, as its answer says."""
    return msgspec.json.decode(answer.content, type=_Answer).usage.prompt_tokens_details.cached_tokens


def reused(earlier: Sequence[Sequence[int]], prompt: Sequence[int]) -> int:
    """Tokens of `prompt` that an engine must have from those that it served: whole blocks, never the last token."""
    common = max((_common(each, prompt) for each in earlier), default=0)
    return min(common, len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@contextlib.contextmanager
def engines(python: Path, directory: Path, ids: Sequence[str], template: str) -> Iterator[dict[str, Engine]]:
    """Started and ready; ended by process group. `directory` has a short path, for the Unix sockets in it."""
    model = make_model(directory / "model", MAX_MODEL_LEN)
    model.chat_template.write_text(template)
    started = {
        name: _engine(python, directory, model, name, port)
        for name, port in zip(ids, free_ports(len(ids)), strict=True)
    }
    try:
        for engine in started.values():
            engine.start()
        for engine in started.values():
            engine.until_ready()
        yield started
    finally:
        for engine in started.values():
            engine.stop()


def _engine(python: Path, directory: Path, model: ModelFolder, name: str, port: int) -> Engine:
    own = directory / f"{name}.own"
    own.mkdir()
    events = kv_events(f"ipc://{directory}/{name}.kv", f"ipc://{directory}/{name}.replay")
    environment = os.environ | VLLM_ENVIRONMENT
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}  # not all on one processor
    environment |= {"VLLM_SERVER_DEV_MODE": "1"}  # with /reset_prefix_cache
    environment |= {"TMPDIR": str(own)}  # where its sockets are left when it is killed
    environment.pop("PYTHONPATH", None)
    command = vllm_command(python, model, (MODEL, SALTED), port, events)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
    return Engine(name, port, command, environment, directory / f"{name}.log", client)
