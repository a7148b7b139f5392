"""A picker's sharing as a whole: what it refuses, whom it asks first, and that it cannot end the picker."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from sharers import Sharer, until

from homing.cli.main import main
from homing.control.http_server import HttpServer, listening
from homing.core.config import parse
from homing.ext_proc.http import app
from homing.ext_proc.pins.secret import SharedSecret
from homing.ext_proc.pins.sharing import Sharing, SharingError, pins_url, shared_secret

A = b"a" * 16
POOLS = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:9'}]}}\n"
SECRET = SharedSecret(True, b"key")


def sharing(sharer: Sharer, *siblings: str) -> Sharing:
    return Sharing(siblings, SECRET, sharer.knowledge)


@pytest.fixture
def directory() -> Iterator[Path]:
    """pytest's own are too long for Unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="homing-sharing-"))
    yield path
    shutil.rmtree(path)


@contextlib.asynccontextmanager
async def serving(shares: Sharing, address: str):
    server = HttpServer(app(CollectorRegistry(), lambda: None, shares.routes()))
    with listening(address) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield
        finally:
            server.should_exit = True
            await task


async def test_a_picker_that_starts_asks_until_somebody_has_a_table(directory: Path):
    """Itself among them: a template of a unit names all pickers alike."""
    knowing, starting = Sharer("knowing"), Sharer("starting")
    knowing.put(A, "r1")
    own, other, gone = (f"unix:{directory}/{name}.sock" for name in ("own", "other", "gone"))
    starts = sharing(starting, gone, own, other)
    async with serving(starts, own), serving(sharing(knowing), other):
        await starts.catch_up()
        assert starting.home(A) == "r1"
        task = asyncio.create_task(starts.run())
        starting.put(b"b" * 16, "r2")
        await until(lambda: knowing.home(b"b" * 16) == "r2")
        starting.put(b"c" * 16, "r3")
        task.cancel()
        await asyncio.wait([task])
        assert knowing.home(b"c" * 16) == "r3", "told at the end"


async def test_a_defect_in_sharing_does_not_end_the_picker(monkeypatch: pytest.MonkeyPatch):
    sharer = Sharer("one")
    shares = sharing(sharer, "unix:/nowhere")
    failures = 0

    async def tell(*_: object) -> bool:
        nonlocal failures
        failures += 1
        raise RuntimeError("a defect")

    monkeypatch.setattr("homing.ext_proc.pins.siblings.Sibling.tell", tell)
    task = asyncio.create_task(shares.run())
    await until(lambda: failures == 1)
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("sessions", "said"),
    [
        ("{secret: file:missing}", r"^sessions\.secret: file:missing: no such file or directory$"),
        ("{secret: file:short}", r"^sessions\.secret: file:short: shorter than 16 bytes$"),
        (
            "{secret: file:good, pins: env:NO_SUCH_URL}",
            r"^sessions\.pins: env:NO_SUCH_URL: the variable is not set$",
        ),
        ("{secret: file:good, pins: file:good}", r"^sessions\.pins: not a URL of a Redis$"),
    ],
)
def test_what_cannot_be_had_is_one_line_without_a_secret_in_it(tmp_path: Path, sessions: str, said: str):
    (tmp_path / "short").write_text("too short")
    (tmp_path / "good").write_text("long enough to be a secret")
    with pytest.raises(SharingError, match=said):
        as_configured(sessions, tmp_path / "homing.yaml")


def as_configured(sessions: str, file: Path) -> None:
    """What a picker makes of the file when it starts."""
    settings, sharer = parse(POOLS + f"sessions: {sessions}", "f").sessions, Sharer("one")
    made = Sharing((), shared_secret(settings, file), sharer.knowledge)
    if (url := pins_url(settings, file)) is not None:
        made.keep_in_redis(url)


def test_without_the_package_redis_a_store_is_refused_in_words(monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "redis" or "pins.redis_" in name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SharingError, match=r"pip install 'homing\[redis\]'"):
        sharing(Sharer("one")).keep_in_redis("redis://cache")


def test_siblings_without_a_secret_are_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOMING_SECRET", raising=False)
    (tmp_path / "homing.yaml").write_text(POOLS)
    where = ("--listen", f"unix:{tmp_path}/p.sock", "--http", f"unix:{tmp_path}/h.sock")
    result = CliRunner().invoke(
        main, ["ext-proc", "-c", str(tmp_path / "homing.yaml"), *where, "--sibling", "127.0.0.1:1"]
    )
    assert result.exit_code == 2
    assert "siblings need a secret that they share: sessions.secret in the file, or HOMING_SECRET" in result.output
