"""The directory of one run."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from homing.cli.run_directory import LOCK, PREFIX, SOCKET_PATH_BYTES_MAX, run_directory


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary files are made, as TMPDIR says."""
    parent = tmp_path / "t"
    parent.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    monkeypatch.setattr("homing.cli.run_directory.SOCKET_PATH_BYTES_MAX", 4096)
    return parent


def test_it_is_private_and_gone_at_the_end(temporary: Path) -> None:
    with run_directory() as run:
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert run.parent == temporary
        assert run.name.startswith(PREFIX)
        (run / "state").mkdir()
        (run / "state" / "lds.json").write_text("{}")
    assert list(temporary.iterdir()) == []


def test_it_is_gone_after_an_error(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_directory():
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


def test_two_runs_do_not_disturb_each_other() -> None:
    with run_directory() as first, run_directory() as second:
        assert first != second
        assert first.is_dir()
        assert second.is_dir()


def test_what_a_killed_run_left_is_removed(temporary: Path) -> None:
    left = temporary / f"{PREFIX}killed"
    left.mkdir()
    (left / LOCK).touch()
    (left / "homing.yaml").touch()
    with run_directory():
        assert not left.exists()


@pytest.mark.parametrize("name", [f"{PREFIX}other", "elsewhere"])
def test_directories_of_others_stay(temporary: Path, name: str) -> None:
    """Without a lock of ours in it, it is not known to be a run's."""
    other = temporary / name
    other.mkdir()
    (other / "file").touch()
    with run_directory():
        pass
    assert (other / "file").exists()


def test_a_link_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / LOCK).touch()
    (temporary / f"{PREFIX}link").symlink_to(precious)
    with run_directory():
        pass
    assert (precious / LOCK).exists()


def test_its_sockets_fit_where_the_temporary_directory_is_deep(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    deep = temporary / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with run_directory() as run:
        assert run.parent == Path("/tmp")
        assert len(os.fsencode(run / "standby-http.sock")) <= SOCKET_PATH_BYTES_MAX
