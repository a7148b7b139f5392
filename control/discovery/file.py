"""Replicas in a file of their own, written by whoever knows them. Replace it by a rename, so that no half is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from homing.control.discovery.source import Found, SourceError
from homing.control.reload import signature
from homing.core.config import MAX_FILE_BYTES, ConfigError
from homing.core.config.replicas_file import parse_replicas

POLL_S = 0.5


class FileSource:
    def __init__(self, path: Path, poll_s: float = POLL_S) -> None:
        self._path = path
        self._poll_s = poll_s

    async def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        while True:
            read = signature(self._path)
            yield await asyncio.to_thread(self._read)
            while signature(self._path) == read:  # noqa: ASYNC110 (nothing tells of a file's change but the file)
                await asyncio.sleep(self._poll_s)

    def _read(self) -> tuple[Found, ...]:
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            replicas = parse_replicas(data, str(self._path))
        except OSError as error:
            raise SourceError(f"{self._path}: {(error.strerror or str(error)).lower()}") from None
        except ConfigError as error:
            raise SourceError(str(error.problems[0])) from None
        return tuple(Found(r.id, r.address, r.weight, r.rank, r.tls) for each in replicas for r in each.replicas())
