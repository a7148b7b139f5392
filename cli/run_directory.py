"""The directory for one run's sockets and files: private, short of name, gone at the end.

Unix socket paths have at most 107 bytes (unix(7), sun_path), hence the length. A supervisor that was killed with -9
cannot remove its own; the next run does. Each holds a lock (flock) on a file in its own for as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "homing-"
LOCK = "lock"
SOCKET_PATH_BYTES_MAX = 107
NAME_BYTES_MAX = 32  # of a socket in the directory


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """Raises OSError when none can be made."""
    parent = _parent()
    _remove_stale(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # mode 0700
    try:
        with _locked(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _parent() -> Path:
    """Where temporary files belong; /tmp where that is too long for a socket in a directory in it."""
    parent = Path(tempfile.gettempdir()).absolute()
    random_part = 8
    length = len(os.fsencode(parent)) + len(f"/{PREFIX}") + random_part + 1 + NAME_BYTES_MAX
    return parent if length <= SOCKET_PATH_BYTES_MAX else Path("/tmp")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / f"{LOCK}.new").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(path / LOCK)  # under its name only once it is held: see _remove_stale
        yield


def _remove_stale(parent: Path) -> None:
    """Removes directories of ours whose lock nobody holds."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            directory = lock.parent.lstat()
            if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != os.getuid():
                continue  # not made by us: anybody may write here
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
