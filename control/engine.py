"""What is asked of an engine beside its health: when its process began, and one real request.

The request is the smallest of the pool's kind (one token, one text). It proves that the engine can do what `/health`
only promises, and warms it up before a client waits for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
import msgspec

from homing.control.engine_transport import EngineTransport, EngineTrust, plain

PROOF_TIMEOUT_S = 30.0  # a first request may have to compile something
METRICS_TIMEOUT_S = 2.0
MAX_BODY_BYTES = 4 << 20

_STARTED = re.compile(rb"^process_start_time_seconds(?:\{[^}]*\})? ([0-9.eE+]+)", re.MULTILINE)

Body = Mapping[str, object]

REQUESTS: Mapping[str, tuple[str, Body]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}),
    "completion": ("/v1/completions", {"prompt": "Hello", "max_tokens": 1}),
    "embedding": ("/v1/embeddings", {"input": "Hello"}),
    "rerank": ("/v1/rerank", {"query": "Hello", "documents": ["Hello"]}),
}
"""By kind: path and body, to which the model's name is added."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask for what. `kind`: one of REQUESTS, or `auto` for the first of them that the engine knows; `rank`: the
    data-parallel one that is to answer."""

    pool: str
    address: str
    model: str
    kind: str
    rank: int | None = None


class Engines:
    """An asynchronous context manager. Never raises for what an engine does or fails to do."""

    def __init__(self, api_key: Callable[[str], str | None], trust: EngineTrust | None = None) -> None:
        """`api_key` of a pool, None for none. Raises nothing. `trust`: None where all engines speak plain HTTP."""
        self._api_key = api_key
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(
            transport=EngineTransport(trust or plain(), limits), timeout=None, trust_env=False, follow_redirects=False
        )

    async def __aenter__(self) -> Engines:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def epoch(self, asked: Asked) -> int:
        """When the engine's process began, in ms since 1970; 0 where it does not say."""
        try:
            async with asyncio.timeout(METRICS_TIMEOUT_S):
                _, body = await self._fetch(asked, "GET", "/metrics", None)
            found = _STARTED.search(body)
            return int(float(found.group(1)) * 1000) if found else 0
        except (httpx.HTTPError, OSError, ValueError, OverflowError):
            return 0

    async def unfit(self, asked: Asked) -> str:
        """Why the engine cannot serve; empty when it can, and also when it only refuses to be asked like this."""
        kinds = tuple(REQUESTS) if asked.kind == "auto" else (asked.kind,)
        try:
            async with asyncio.timeout(PROOF_TIMEOUT_S):
                for kind in kinds:
                    path, body = REQUESTS[kind]
                    status, answer = await self._fetch(asked, "POST", path, {**body, "model": asked.model})
                    if status >= 500:
                        return f"a {kind} request is answered with {status}"
                    if status == httpx.codes.NOT_FOUND and b"does not exist" in answer:
                        return f"it does not serve the model {asked.model}"
                    if status < 400 or status in (401, 403, 429):  # our key is not known, or it is busy: it is alive
                        return ""
            return ""
        except TimeoutError:
            return f"a request takes longer than {PROOF_TIMEOUT_S:g} s"
        except (httpx.HTTPError, OSError) as error:
            return f"a request ends without an answer ({type(error).__name__})"

    async def _fetch(self, asked: Asked, method: str, path: str, body: Body | None) -> tuple[int, bytes]:
        key = self._api_key(asked.pool)
        headers = {"content-type": "application/json"} if body is not None else {}
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        headers |= {"x-data-parallel-rank": str(asked.rank)} if asked.rank is not None else {}
        content = msgspec.json.encode(body) if body is not None else None
        url = f"http://{asked.address}{path}"
        async with self._client.stream(method, url, content=content, headers=headers) as response:
            answer = bytearray()
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > MAX_BODY_BYTES:
                    break
            return response.status_code, bytes(answer)
