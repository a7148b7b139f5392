"""One try to find out what a pool's template does: from its files, or from one of its replicas."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random

import httpx

from homing.control.engine_transport import EngineTransport, EngineTrust, plain
from homing.control.secrets import SecretError, resolve
from homing.control.templates.dates import spellings
from homing.control.templates.engine import Engine, EngineError, probed
from homing.control.templates.files import SourceError, from_directory, from_file
from homing.control.templates.renderer import Renderer, WorkerLostError
from homing.core.config import TemplateConfig
from homing.core.config.secret import SecretRef
from homing.core.template.probe import OpaqueError, RefusedError
from homing.core.template.record import Capabilities
from homing.core.template.source import ChatTemplate

TROUBLES = (SourceError, EngineError, RefusedError, OpaqueError, WorkerLostError, SecretError)
"""What a try may end with. The text of each says why, in words."""

SEED_BYTES = 16


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out. `text` is None where only the engine has it."""

    record: Capabilities
    text: ChatTemplate | None = None


class Finder:
    """`beside`: the file that relative paths are relative to. An asynchronous context manager."""

    def __init__(self, beside: Path, random: Random, trust: EngineTrust | None = None) -> None:
        """`trust`: None where all replicas speak plain HTTP."""
        self._beside = beside
        self._random = random
        self._renderer = Renderer()
        # trust_env: a proxy of the environment is for the way out, not for replicas
        self._client = httpx.AsyncClient(
            transport=EngineTransport(trust or plain()), timeout=None, trust_env=False, follow_redirects=False
        )

    async def __aenter__(self) -> Finder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._renderer.end()
        await self._client.aclose()

    async def in_files(self, source: TemplateConfig) -> Found:
        """Raises one of TROUBLES."""
        path = self.path_of(source)
        assert path is not None
        text = await asyncio.to_thread(from_file if source.file else from_directory, path)
        return Found(await self._renderer.probe(text, self._seed(), _dates()), text)

    async def of_engine(self, address: str, model: str, key: SecretRef | None = None) -> Found:
        """`key`: the place of the engine's API key. Raises one of TROUBLES."""
        engine = Engine(self._client, address, model, key_at(key, self._beside))
        return Found(await probed(engine.render, self._seed(), _dates()))

    async def length_of_engine(self, address: str, model: str, key: SecretRef | None = None) -> int:
        """How many tokens it takes. Raises one of TROUBLES."""
        return await Engine(self._client, address, model, key_at(key, self._beside)).max_model_len()

    def path_of(self, source: TemplateConfig) -> Path | None:
        """Of the file or the directory; None where it is the engine's."""
        named = source.file or source.directory
        return self._beside.parent / named if named else None

    def _seed(self) -> bytes:
        return self._random.randbytes(SEED_BYTES)


def where(source: TemplateConfig) -> str:
    """The source in words."""
    if source.file:
        return f"file {source.file}"
    return f"directory {source.directory}" if source.directory else source.source


def key_at(place: SecretRef | None, beside: Path) -> str | None:
    """Raises SecretError."""
    return None if place is None else resolve(place, beside, os.environ).decode(errors="replace")


def _dates() -> tuple[str, ...]:
    return spellings(date.today())
