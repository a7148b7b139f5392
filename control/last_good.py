"""Files from which Envoy boots while control is away, and the fleet beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class LastGood:
    """A directory whose files are replaced whole, by a rename within it: a reader sees the old or the new one."""

    def __init__(self, directory: Path) -> None:
        """Makes the directory. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory

    def write(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Writes those that differ from what is there; returns their names. Raises OSError; then the rest stays old."""
        return tuple(name for name, content in files.items() if self._write(self.directory / name, content))

    def _write(self, path: Path, content: bytes) -> bool:
        if path.exists() and path.read_bytes() == content:
            return False
        # One name per file: what a crash leaves behind is overwritten the next time, and never grows.
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        return True
