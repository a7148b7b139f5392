"""The way to one sibling: its HTTP port, by connections that stay open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Sequence

import httpx

from homing.core.journal import Word
from homing.ext_proc.pins.counts import Peer, PinCounts, Why
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.message import MAX_BYTES, MalformedMessageError, Message, decode_served, decode_words, encode

INTERVAL_S = 0.1
SOONEST_S = 0.02
EACH_REPLICA_S = 0.0002
"""So long a sibling is left in peace, whatever is urgent: the more replicas, the longer it has to read."""

RETRY_S = 0.5
QUIET_S = 0.5
"""Who has nothing new says so all the same, so that its load does not expire."""

TIMEOUT_S = 1.0
FIRST_BYTE_S = 0.5
"""A sibling that is asked for its table and says nothing for so long is not waited for."""

JOURNAL_PATH = "/siblings/journal"
TABLE_PATH = "/siblings/table"
WORDS_PATH = "/siblings/words"
CONNECTIONS = 2
"""So that a question does not wait for what is being told."""

LENGTH_BYTES = 4

log = logging.getLogger(__name__)


def soonest_s(replicas: int) -> float:
    """From one word to the next, at least."""
    return min(SOONEST_S + EACH_REPLICA_S * replicas, INTERVAL_S)


class Sibling:
    """Tells one sibling what changes here. `address`: `unix:/path` or `host:port` of its HTTP port."""

    def __init__(
        self, address: str, token: str, knowledge: Knowledge, counts: PinCounts, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls`: None where it speaks plain text."""
        self._address = address
        self._knowledge = knowledge
        self._counts = counts
        self._untold = knowledge.untold()
        self._client = _client(address, token, tls)
        self._urgent = asyncio.Event()
        knowledge.load.when_urgent(self._urgent.set)
        self._hears: bool | None = None
        self._said: tuple[list[tuple[str, str, object]], float] = ([], 0.0)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._urgent.clear()
            told = await self.tell()
            if not told or self._untold:
                await asyncio.sleep(INTERVAL_S / 10 if told else RETRY_S)
            else:
                await self._pause()

    async def _pause(self) -> None:
        """Until there should be news, or something is urgent."""
        soonest = soonest_s(self._knowledge.load.replicas)
        await asyncio.sleep(soonest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERVAL_S - soonest):
                await self._urgent.wait()

    async def flush(self) -> None:
        """Says the rest; the caller bounds the time."""
        while self._untold and await self.tell():
            pass

    async def tell(self) -> bool:
        """Whether the sibling has heard all that was said up to now, at most one message of changes. One that did not
        hear the last is tried with little first."""
        if self._hears is False and not await self._say(self._knowledge.message(None)):
            return False
        if self._untold.journal.lost:
            self._counts.retold[Peer.SIBLING] += 1
        message = self._knowledge.message(self._untold)
        if not message.news and not self._worth_saying(message):
            return True
        return await self._say(message)

    async def _say(self, message: Message) -> bool:
        why: Why | None
        try:
            answer = await self._client.post(JOURNAL_PATH, content=encode(message))
        except httpx.HTTPError as error:
            why = Why.LATE if isinstance(error, httpx.TimeoutException) else Why.AWAY
        except BaseException:
            self._untold.again(message)
            raise
        else:
            why = None if answer.status_code == 204 else Why.REFUSED if answer.status_code == 401 else Why.NONSENSE
        if why is not None:
            self._untold.again(message)
            self._failed(why)
            return False
        self._note(hears=True)
        self._counts.told[Peer.SIBLING] += len(message.words)
        self._said = (list(message.load), time.monotonic())
        return True

    async def pull(self) -> bool:
        """Takes in its whole table. False when it did not give it whole; the caller bounds the time."""
        words: list[Word] = []
        try:
            async with self._client.stream("GET", TABLE_PATH, timeout=FIRST_BYTE_S) as answer:
                if answer.status_code != 200:
                    self._failed(Why.REFUSED if answer.status_code == 401 else Why.NONSENSE)
                    return False
                whole = await self._read(answer, words)
        except httpx.HTTPError as error:
            self._failed(Why.LATE if isinstance(error, httpx.TimeoutException) else Why.AWAY)
            whole = False
        except MalformedMessageError:
            self._failed(Why.NONSENSE)
            whole = False
        finally:
            words.sort(key=lambda word: word.idle_s, reverse=True)  # who was used last is to stay longest
            self._counts.heard[Peer.SIBLING] += self._knowledge.absorb(words)
        return whole

    async def ask(self, digests: Sequence[bytes]) -> set[bytes]:
        """Takes in what it knows of these; which that were. Raises httpx.HTTPError or MalformedMessageError."""
        answer = await self._client.post(WORDS_PATH, content=encode(list(digests)))
        words = decode_words(answer.raise_for_status().content)
        self._counts.heard[Peer.SIBLING] += self._knowledge.absorb(words)
        return {word.digest for word in words if word.replica}

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, answer: httpx.Response, words: list[Word]) -> bool:
        """Whether the table of homes was whole. The prompts after it are taken in as they come."""
        whole = False
        async for frame in _frames(answer):
            if not frame:
                if whole:
                    break
                whole = True
            elif whole:
                self._knowledge.absorb_served(decode_served(frame))
            else:
                words += decode_words(frame)
        return whole

    def _worth_saying(self, message: Message) -> bool:
        load, at = self._said
        return message.load != load or time.monotonic() - at >= QUIET_S

    def _failed(self, why: Why) -> None:
        self._counts.failed[Peer.SIBLING, why] += 1
        self._note(hears=False, why=why)

    def _note(self, *, hears: bool, why: str = "") -> None:
        if hears != self._hears:
            self._hears = hears
            log.info("sibling %s %s", self._address, "hears us" if hears else f"does not hear us ({why})")


async def _frames(answer: httpx.Response) -> AsyncIterator[bytes]:
    """A length, then that many bytes; nothing of a frame that is cut off. Raises MalformedMessageError."""
    rest = bytearray()
    async for chunk in answer.aiter_bytes():
        rest += chunk
        while len(rest) >= LENGTH_BYTES:
            length = int.from_bytes(rest[:LENGTH_BYTES], "big")
            if length > MAX_BYTES:
                raise MalformedMessageError("a frame that is too long")
            if len(rest) < LENGTH_BYTES + length:
                break
            frame = bytes(rest[LENGTH_BYTES : LENGTH_BYTES + length])
            del rest[: LENGTH_BYTES + length]
            yield frame


def _client(address: str, token: str, tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    unix = address.startswith("unix:")
    scheme = "http" if tls is None else "https"
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            uds=address.removeprefix("unix:") if unix else None,
            verify=True if tls is None else tls,
            limits=httpx.Limits(
                max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0
            ),
        ),
        base_url="http://sibling" if unix else f"{scheme}://{address}",
        headers={"authorization": f"Bearer {token}"},
        timeout=TIMEOUT_S,
    )
