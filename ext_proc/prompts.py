"""Prompts as a pool's engine makes them, for proofs: rendered from the template's text where there is one, which comes
from the control service or from the file; else asked of the engine, seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import msgspec

from homing.control.engine_transport import EngineTransport, EngineTrust, plain
from homing.control.secrets import SecretError
from homing.control.templates.engine import Engine, EngineError
from homing.control.templates.finding import key_at
from homing.control.templates.prober import Progress
from homing.control.templates.renderer import Renderer, WorkerLostError
from homing.control.trust import PLAIN, Trust
from homing.core.config.secret import SecretRef
from homing.core.context.proof import Case
from homing.core.fleet import Pool
from homing.core.template.source import ChatTemplate
from homing.ext_proc.proof import Unchecked, UnprovableError

ENGINE_PAUSE_S = 1.0
"""At the least between two prompts asked of engines, by one picker."""

CONTROL_TIMEOUT_S = 2.0
MAX_KEPT = 200


class TemplatePrompts:
    """`control`: its URL, or several with commas between, if there is one; `file`: the configuration, for paths
    relative to it.

    An asynchronous context manager.
    """

    def __init__(
        self,
        control: str | None,
        file: Path,
        clock: Callable[[], float],
        trust: Trust = PLAIN,
        engines: EngineTrust | None = None,
    ) -> None:
        """`trust`: how the control service is spoken to; `engines`: None where all speak plain HTTP."""
        self._file = file
        self.found: Mapping[str, Progress] = {}
        """What this process has found out itself, by pool: while there is no control service."""
        self._control = control
        self._clock = clock
        self._renderer = Renderer()
        self._telling = httpx.AsyncClient(
            verify=trust.verify, auth=trust.auth, timeout=CONTROL_TIMEOUT_S, trust_env=False
        )
        transport = EngineTransport(engines or plain())
        self._client = httpx.AsyncClient(transport=transport, timeout=CONTROL_TIMEOUT_S, trust_env=False)
        self._kept: dict[str, ChatTemplate] = {}
        self._asked_s = -ENGINE_PAUSE_S

    async def __aenter__(self) -> TemplatePrompts:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._renderer.end()
        await self._client.aclose()
        await self._telling.aclose()

    async def prompt(self, pool: Pool, case: Case, key: SecretRef | None) -> str:
        """Raises RefusedError, UnprovableError."""
        if pool.template is None:
            raise UnprovableError(Unchecked.TEMPLATE)
        if not pool.template_digest:
            return await self._engines(pool, case, key)
        text = await self._text(pool.id, pool.template_digest)
        try:
            return await self._renderer.render(text, case.messages, case.tools)
        except WorkerLostError:
            raise UnprovableError(Unchecked.WORKER) from None

    async def _engines(self, pool: Pool, case: Case, key: SecretRef | None) -> str:
        now = self._clock()
        if now < self._asked_s + ENGINE_PAUSE_S:
            raise UnprovableError(Unchecked.RATE)
        self._asked_s = now
        replica = next((r for r in pool.replicas if r.in_hash), None)
        if replica is None:
            raise UnprovableError(Unchecked.ENGINE)
        try:
            engine = Engine(self._client, replica.address, pool.served_name, key_at(key, self._file))
            return await engine.render(case.messages, case.tools)
        except (EngineError, SecretError):
            raise UnprovableError(Unchecked.ENGINE) from None

    async def _text(self, pool_id: str, digest: str) -> ChatTemplate:
        if digest not in self._kept:
            text = self._local(pool_id) or await self._told(pool_id)
            if text is None or text.digest != digest:
                raise UnprovableError(Unchecked.TEMPLATE)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[digest] = text
        return self._kept[digest]

    def _local(self, pool_id: str) -> ChatTemplate | None:
        progress = self.found.get(pool_id)
        return progress.found.text if progress and progress.found else None

    async def _told(self, pool_id: str) -> ChatTemplate | None:
        for control in self._control.split(",") if self._control else ():
            try:
                answer = await self._telling.get(f"{control.rstrip('/')}/api/templates/{pool_id}")
                answer.raise_for_status()
                return msgspec.json.decode(answer.content, type=ChatTemplate)
            except (httpx.HTTPError, msgspec.DecodeError, UnicodeDecodeError):
                continue
        return None
