"""What a picker's HTTP port has for its siblings: they tell their changes, and ask for some sessions or the
whole table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from homing.ext_proc.guard import shows
from homing.ext_proc.pins.counts import Peer, PinCounts
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.message import MAX_BYTES, MAX_WORDS, MalformedMessageError, decode, decode_digests, encode
from homing.ext_proc.pins.siblings import JOURNAL_PATH, LENGTH_BYTES, TABLE_PATH, WORDS_PATH


def routes(knowledge: Knowledge, counts: PinCounts, token: str) -> list[Route]:
    """Only for who has the token."""

    async def said(request: Request) -> bytes | Response:
        """The body, or a refusal."""
        if not shows(request, token):
            return PlainTextResponse("a sibling's token is missing\n", 401)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                return PlainTextResponse(f"more than {MAX_BYTES} bytes\n", 413)
        return bytes(body)

    async def journal(request: Request) -> Response:
        body = await said(request)
        if isinstance(body, Response):
            return body
        try:
            message = decode(body)
        except MalformedMessageError as error:
            return PlainTextResponse(f"{error}\n", 400)
        counts.heard[Peer.SIBLING] += knowledge.take_in(message)
        return Response(status_code=204)

    async def words(request: Request) -> Response:
        body = await said(request)
        if isinstance(body, Response):
            return body
        try:
            digests = decode_digests(body)
        except MalformedMessageError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return Response(encode(knowledge.words_of(digests)), media_type="application/octet-stream")

    async def table(request: Request) -> Response:
        if not shows(request, token):
            return PlainTextResponse("a sibling's token is missing\n", 401)
        return StreamingResponse(_frames(knowledge), media_type="application/octet-stream")

    told = Route(JOURNAL_PATH, journal, methods=["POST"])
    return [told, Route(WORDS_PATH, words, methods=["POST"]), Route(TABLE_PATH, table)]


async def _frames(knowledge: Knowledge) -> AsyncIterator[bytes]:
    """The whole table, in pieces between which requests are served; then all prompts likewise."""
    parts: tuple[tuple[list[bytes], Callable[[Sequence[bytes]], object]], ...] = (
        (knowledge.homes.digests(), knowledge.words_of),
        (knowledge.chains.prompts(), knowledge.served),
    )
    for digests, of in parts:
        for i in range(0, len(digests), MAX_WORDS):
            frame = encode(of(digests[i : i + MAX_WORDS]))
            yield len(frame).to_bytes(LENGTH_BYTES, "big") + frame
            await asyncio.sleep(0)
        yield bytes(LENGTH_BYTES)
