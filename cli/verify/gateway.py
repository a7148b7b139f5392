"""The gateway under test, by HTTP: its models, one answer, an id that it issues."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import click
import httpx
import msgspec

from homing.cli.verify import given, stream
from homing.core.verify.conversation import Prompt
from homing.core.verify.observed import TLS, Answer, Failure

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

CLOSE = "x-session-close"


@dataclass(frozen=True, slots=True)
class Target:
    """`url` without a /v1 at its end. `header` carries the session's id; `headers` go with every request. `ca`: a file
    of certificates to trust instead of the usual ones."""

    url: str
    endpoint: str
    header: str
    timeout_s: float
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: Path | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class Gateway:
    """An asynchronous context manager. What goes wrong with a request is an Answer with a failure, never raised."""

    def __init__(self, target: Target, connections: int) -> None:
        self.target = target
        headers = {**target.headers, **({"authorization": f"Bearer {target.key}"} if target.key else {})}
        self._client = httpx.AsyncClient(
            base_url=target.url,
            headers=headers,
            timeout=httpx.Timeout(target.timeout_s),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            verify=trusted(target.ca),
            trust_env=False,
        )

    async def __aenter__(self) -> Gateway:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def models(self) -> tuple[str, ...] | Answer:
        """Their names, or the failure."""
        try:
            response = await self._client.get("/v1/models")
            if response.status_code != httpx.codes.OK:
                return await stream.read(response, 0.0, time.perf_counter, self.target.header)
            return tuple(model.id for model in msgspec.json.decode(response.content, type=_Models).data)
        except httpx.HTTPError as error:
            return _lost(error)
        except msgspec.MsgspecError:
            return ()

    async def issued(self) -> str | None:
        """An id of the gateway's own making: homing names a session in every answer."""
        try:
            response = await self._client.get("/v1/models")
        except httpx.HTTPError:
            return None
        session: str | None = response.headers.get(self.target.header)
        return session

    async def ask(
        self,
        model: str,
        prompt: Prompt,
        max_tokens: int,
        session: str | None,
        *,
        last: bool = False,
        header: str | None = None,
    ) -> Answer:
        """`session`: the id to send, in `header` instead of the session's where that is given. `last`: nothing of the
        session will come any more. homing counts those that may come back where it places new ones."""
        headers = {header or self.target.header: session} if session is not None else {}
        headers |= {CLOSE: "true"} if last else {}
        body = msgspec.json.encode(_body(self.target.endpoint, model, prompt, max_tokens))
        began_s = time.perf_counter()
        try:
            async with self._client.stream(
                "POST",
                PATHS[self.target.endpoint],
                content=body,
                headers={**headers, "content-type": "application/json"},
            ) as response:
                return await stream.read(response, began_s, time.perf_counter, self.target.header)
        except httpx.HTTPError as error:
            return _lost(error)


def trusted(ca: Path | None) -> ssl.SSLContext | bool:
    """Whom to trust: the certificates in that file, or the usual ones. Raises click.ClickException."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # SSLError is one
        raise click.ClickException(f"--ca {ca}: {error}") from None


def target_of(
    url: str, endpoint: str, header: str, timeout_s: float, key: str | None, headers: tuple[str, ...], ca: Path | None
) -> Target:
    """Raises click.UsageError."""
    more = {}
    for text in headers:
        before, colon, after = text.partition(":")
        if not colon:
            raise click.UsageError("--header: give 'NAME: VALUE'")
        more[given.name("--header", before.strip())] = given.value("--header", after.strip())
    base = str(given.address("--url", url)).rstrip("/")
    session = given.name("--session-header", header).lower()
    key = given.value("--api-key", key) if key is not None else None
    return Target(base, endpoint, session, timeout_s, key, more, ca)


def _body(endpoint: str, model: str, prompt: Prompt, max_tokens: int) -> Mapping[str, object]:
    said: dict[str, object]
    if endpoint == "chat":
        said = {"messages": prompt}
    else:
        said = {"prompt": "\n\n".join([*(f"{m.role}: {m.content}" for m in prompt), "assistant:"])}
    wanted = {"max_tokens": max_tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    return {"model": model, **said, **wanted}


def _lost(error: httpx.HTTPError) -> Answer:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Answer(failure=Failure.UNREACHABLE, detail=_reason(error) or "no connection")
    if isinstance(error, httpx.LocalProtocolError):  # in its own words it quotes headers: keys, ids
        return Answer(failure=Failure.BROKEN, detail="the request cannot be written as HTTP")
    if isinstance(error, httpx.TimeoutException):
        return Answer(failure=Failure.LATE, detail="nothing came within --timeout")
    return Answer(failure=Failure.BROKEN, detail=_reason(error) or type(error).__name__)


def _reason(error: BaseException) -> str:
    """What the system says: httpx words it as "All connection attempts failed"."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "its name is not known"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{TLS}{cause.verify_message}"
        if isinstance(cause, ssl.SSLError):  # its errno is none of the system's
            return f"{TLS}{(cause.reason or 'no agreement').replace('_', ' ').lower()}"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return str(error)
