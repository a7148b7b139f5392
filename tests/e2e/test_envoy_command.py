"""`homing envoy`: real Envoy, told by the control service or by its last good files, ended without cutting streams."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.client import ask, chat_body, request
from e2e.stack import HOMING, Processes, SimulatedPool, answers, free_ports, in_file, start_sim, until

pytestmark = pytest.mark.e2e

POOL = SimulatedPool("p", "m", 1, sim_flags=("--itl-ms", "10"))
SECONDS_OF_STREAM = 5
HEALTHCHECK = Path(__file__).parents[2] / "compose" / "healthcheck"


class Gateway:
    """Control, one replica, and `homing envoy`. No pickers: Envoy places alone."""

    def __init__(self, directory: Path) -> None:
        self.processes = Processes(directory)
        self.listen, self.admin, self.xds, self.api, replica = free_ports(5)
        self.directory, self.file, self.state = directory, directory / "homing.yaml", directory / "state"
        settings: dict[str, object] = {
            name: f"127.0.0.1:{getattr(self, name)}" for name in ("listen", "admin", "xds", "api")
        }
        settings["pools"] = {POOL.id: {"served_name": POOL.served_name, "replicas": in_file(POOL, {"p-0": replica})}}
        self.file.write_text(json.dumps(settings))
        start_sim(self.processes, POOL, "p-0", replica)
        wiring = ("--picker", f"unix:{directory}/nobody.sock")
        self.processes.start("control", (*HOMING, "control", *self._common(), *wiring))
        until(lambda: answers(f"http://127.0.0.1:{self.api}/readyz"), what="control")

    def _common(self) -> tuple[str, ...]:
        return ("-c", str(self.file), "--state-dir", str(self.state))

    def start_envoy(self) -> None:
        self.processes.start("envoy", (*HOMING, "envoy", *self._common(), "--concurrency", "1"))
        until(self.serves, what="Envoy")

    def serves(self) -> bool:
        return answers(f"http://127.0.0.1:{self.listen}/v1/models")

    async def streaming(self) -> asyncio.Task[bytes]:
        """The answer to come; it has begun."""
        body = chat_body(POOL.served_name, stream=True, max_tokens=100 * SECONDS_OF_STREAM)

        async def stream() -> bytes:
            answer = await ask(self.listen, request(body))
            return answer.body if answer.complete else b""

        task = asyncio.create_task(stream())
        await asyncio.sleep(0.5)
        assert not task.done()
        return task


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="homing-e2e-") as directory:
        started = Gateway(Path(directory))
        try:
            started.start_envoy()
            yield started
        finally:
            started.processes.stop_all()


async def test_told_to_end_it_takes_nobody_new_and_ends_what_it_began(gateway: Gateway) -> None:
    stream = await gateway.streaming()
    gateway.processes.signal("envoy", signal.SIGTERM)
    await asyncio.to_thread(until, lambda: not gateway.serves(), what="the port to close")
    assert not stream.done()
    assert (await stream).endswith(b"data: [DONE]\n\n")
    assert await asyncio.to_thread(gateway.processes.running["envoy"].wait, 20) == 0


async def test_told_twice_it_ends_at_once(gateway: Gateway) -> None:
    stream = await gateway.streaming()
    gateway.processes.signal("envoy", signal.SIGTERM)
    await asyncio.to_thread(until, lambda: not gateway.serves(), what="the port to close")
    gateway.processes.signal("envoy", signal.SIGTERM)
    assert await asyncio.to_thread(gateway.processes.running["envoy"].wait, 20) == 0
    assert await stream == b""


def test_its_health_check_waits_until_it_asks_a_picker(gateway: Gateway) -> None:
    target = (f"127.0.0.1:{gateway.listen}/v1/models", f"127.0.0.1:{gateway.admin}")

    def said() -> str:
        return subprocess.run((HEALTHCHECK, *target), capture_output=True, text=True, timeout=20, check=False).stderr

    assert said() == f"{target[1]}: Envoy asks no picker yet\n"
    where = ("--listen", f"unix:{gateway.directory}/nobody.sock", "--http", f"unix:{gateway.directory}/http.sock")
    control = ("--control", f"http://127.0.0.1:{gateway.api}")
    gateway.processes.start("picker", (*HOMING, "ext-proc", "-c", str(gateway.file), *where, *control))
    until(lambda: said() == "", what="the picker to be asked")


async def test_while_control_is_away_it_starts_from_the_last_good_files(gateway: Gateway) -> None:
    gateway.processes.kill("control")
    gateway.processes.kill("envoy")
    until(lambda: not gateway.serves(), what="Envoy to end with its parent")
    gateway.start_envoy()
    assert (await ask(gateway.listen, request(chat_body(POOL.served_name)))).status == 200
    assert "starts from the last good configuration" in gateway.processes.log("envoy")
