"""NGINX's files and the fleet: written once, taken back where NGINX refuses them, taken by a reload."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from e2e.stack import until

from homing.control.nginx_sync import Commands, Follower, NginxFiles, Synced, proven
from homing.core.fleet import Fleet, Pool, Replica, State

YES, NO = ("true",), ("false",)


def fleet(*ids: str, state: State = State.READY) -> Fleet:
    return Fleet((Pool("p", "m", replicas=tuple(Replica(i, "10.0.0.1:1", state=state) for i in ids)),))


def render(of: Fleet) -> Mapping[str, str]:
    return {"ids.conf": " ".join(r.id for r in of.pools[0].replicas), "second.conf": "same"}


def counted(path: Path) -> tuple[str, ...]:
    """A command that leaves a line with every run."""
    return ("sh", "-c", f"echo run >> {path}")


async def test_a_fleet_is_written_tested_and_taken_once(tmp_path: Path) -> None:
    commands = Commands(counted(tmp_path / "tests"), counted(tmp_path / "reloads"))
    files = NginxFiles(tmp_path, render, commands)
    assert await files.apply(fleet("a", "b")) is Synced.RELOADED
    assert await files.apply(fleet("a", "b")) is Synced.UNCHANGED
    assert (tmp_path / "ids.conf").read_text() == "a b"
    assert (tmp_path / "tests").read_text() == (tmp_path / "reloads").read_text() == "run\n"
    assert {p.name for p in tmp_path.iterdir()} == {"ids.conf", "second.conf", "tests", "reloads"}


async def test_what_the_test_refuses_is_taken_back(tmp_path: Path) -> None:
    assert await NginxFiles(tmp_path, render, Commands(YES, YES)).apply(fleet("a")) is Synced.RELOADED
    files = NginxFiles(tmp_path, render, Commands(NO, counted(tmp_path / "reloads")))
    assert await files.apply(fleet("a", "b")) is Synced.REFUSED
    assert (tmp_path / "ids.conf").read_text() == "a"
    assert not (tmp_path / "reloads").exists()


async def test_a_refused_first_fleet_leaves_no_files(tmp_path: Path) -> None:
    assert await NginxFiles(tmp_path, render, Commands(NO, YES)).apply(fleet("a")) is Synced.REFUSED
    assert list(tmp_path.iterdir()) == []


async def test_a_reload_that_failed_is_tried_again(tmp_path: Path) -> None:
    reload = ("test", "-e", str(tmp_path / "running"))
    files = NginxFiles(tmp_path, render, Commands(YES, reload))
    assert await files.apply(fleet("a")) is Synced.NOT_RELOADED
    (tmp_path / "running").touch()
    assert await files.apply(fleet("a")) is Synced.RELOADED
    assert await files.apply(fleet("a")) is Synced.UNCHANGED


async def test_a_command_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    files = NginxFiles(tmp_path, render, Commands((str(tmp_path / "no-nginx"),), YES))
    assert await files.apply(fleet("a")) is Synced.REFUSED


def test_who_has_never_answered_is_left_out() -> None:
    ready, joining = Replica("a", "10.0.0.1:1"), Replica("b", "10.0.0.2:1", state=State.JOINING)
    draining = Replica("c", "10.0.0.3:1", state=State.DRAINING, healthy=False)
    known = proven(Fleet((Pool("p", "m", replicas=(ready, joining, draining)),)))
    assert [r.id for r in known.pools[0].replicas] == ["a", "c"]


def test_a_pool_of_which_nobody_has_answered_keeps_all() -> None:
    assert proven(fleet("a", "b", state=State.JOINING)) == fleet("a", "b", state=State.JOINING)


async def test_changes_that_come_together_are_one_reload(tmp_path: Path) -> None:
    files = NginxFiles(tmp_path, render, Commands(YES, counted(tmp_path / "reloads")))
    follower = Follower(files, settle_s=0.05)
    running = asyncio.create_task(follower.run())
    for ids in (("a",), ("a", "b"), ("a", "b", "c")):
        follower.adopt(fleet(*ids))
    await asyncio.to_thread(until, (tmp_path / "reloads").exists, 5)
    assert (tmp_path / "ids.conf").read_text() == "a b c"
    assert (tmp_path / "reloads").read_text() == "run\n"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
