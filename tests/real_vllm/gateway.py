"""`homing up` in front of real engines, with a file of the test's own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from e2e.stack import HOMING, Processes, free_ports, summed, until
from e2e.up import Up
from real_vllm.engines import MODEL, SALTED, Engine

from bench.calibration.conversations import FORCED_TOKEN

POOL, SALTED_POOL = "p", "salted"
ENDS = {"max_tokens": 1, "ignore_eos": True, "allowed_token_ids": [FORCED_TOKEN]}
"""An answer of one token, always the same one."""

Messages = Sequence[Mapping[str, object]]


@dataclass
class Gateway(Up):
    """`p` is the pool of the tests, `salted` the same engines with tenants apart."""

    directory: Path = Path()
    http: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, timeout=60))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listen}/v1"

    def write(self, replicas: list[str], **more: object) -> None:
        events = {
            name: f"ipc://{self.directory}/{{id}}.{end}" for name, end in (("kv_events", "kv"), ("replay", "replay"))
        }
        at_once = {"slow_start_s": 0}  # replicas come back in these tests, and have their part of the sessions then
        pools = {
            POOL: {"served_name": MODEL, "engine": events, "proof": {"sample": 1}, "placement": at_once},
            SALTED_POOL: {"served_name": SALTED, "isolation": {"cache_salt": "tenant"}, "placement": at_once},
        }
        members = [self._replica(replica) for replica in replicas]
        settings: dict[str, object] = {
            **{name: f"127.0.0.1:{getattr(self, name)}" for name in ("listen", "admin", "xds", "api")},
            "expose_decisions": True,
            "tenants": {"header": "x-tenant", "trusted": True},
            "pools": {pool: {**keys, "replicas": members} for pool, keys in pools.items()},
            **more,
        }
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(settings))
        temporary.rename(self.file)

    def change(self, replicas: list[str], **more: object) -> None:
        """Another file, and every process has taken it."""
        before = self._changes()
        self.write(replicas, **more)
        until(
            lambda: all(now > was for now, was in zip(self._changes(), before, strict=True)), what="the file's readers"
        )

    def _changes(self) -> list[int]:
        said = "homing.control.reload: " + str(self.file) + ": changed, and applied"
        lines = [line for line in self.processes.log("up").splitlines() if said in line]
        return [sum(line.startswith(f"{name} ") for line in lines) for name in ("control", "picker-0", "standby")]

    def replica(self, replica: str) -> Mapping[str, object]:
        """As the API has it in the pool of the tests."""
        pool = next(pool for pool in self.api_json("/api/fleet")["pools"] if pool["id"] == POOL)
        return next(each for each in pool["replicas"] if each["id"] == replica)

    def state(self, replica: str) -> str:
        found = self.replica(replica)
        return str(found["state"]) if found["healthy"] else ""

    def metric(self, name: str, picker: str = "picker-0", **labels: str) -> float:
        text = self.http.get(f"http://127.0.0.1:{self.api}/metrics").text
        return summed(text, name, {"picker": picker, **labels})

    def receipts(self, session: str) -> list[dict[str, object]]:
        """Where the pickers that know the session would send its next turn."""
        found = self.api_json(f"/api/explain?session={session}&pool={POOL}")["receipts"]
        return [receipt for receipt in found if receipt["home"]]

    def repairs(self, model: str) -> bool:
        """Whether the picker knows that the template has to be helped."""
        two = [{"role": "system", "content": word} for word in ("one", "two")]
        return "x-homing-repairs" in self.chat([*two, {"role": "user", "content": "hello"}], model=model).headers

    def blocks(self, replica: str) -> float:
        """That the picker has heard to be in the engine's cache."""
        return self.metric("homing_prefix_blocks", pool=POOL, replica=replica)

    def chat(
        self, messages: Messages, session: str | None = None, model: str = MODEL, tenant: str = "", **members: object
    ) -> httpx.Response:
        """An answer of status 200."""
        headers = {name: value for name, value in (("x-session-id", session), ("x-tenant", tenant)) if value}
        body = {"model": model, "messages": messages, **ENDS, **members}
        answer = self.http.post(f"{self.url}/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer


@contextlib.contextmanager
def gateway(directory: Path, engines: Mapping[str, Engine]) -> Iterator[Gateway]:
    """Started and ready, and the template known to the picker."""
    listen, admin, xds, api = free_ports(4)
    ports = {name: engine.port for name, engine in engines.items()}
    running = Gateway(Processes(directory), listen, admin, xds, api, ports, directory=directory)
    running.write(list(engines))
    running.processes.start("up", (*HOMING, "up", "-c", str(running.file), "--concurrency", "1"))
    try:
        until(lambda: "Ctrl-C ends it" in running.processes.log("up"), 120, "homing up")
        for replica in engines:
            until(lambda replica=replica: running.state(replica) == "ready", 60, f"{replica} to be ready")
        for pool in (MODEL, SALTED):
            until(lambda pool=pool: running.repairs(pool), 30, f"the template's record of {pool} at the picker")
        yield running
    finally:
        running.processes.stop_all()
        running.http.close()
