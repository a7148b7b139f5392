"""Learns which tokens a prompt's messages are: asks a replica's `/tokenize`, off the hot path.

One request at a time and a few in a second; what comes while the queue is full is not learned, and counted.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import httpx
import msgspec

from homing.control.engine_transport import EngineTransport, EngineTrust, plain
from homing.core.placement.load import Place
from homing.core.prefix.blocks import chain
from homing.core.prefix.index import Index
from homing.core.prefix.learned import Chains
from homing.core.prefix.prompt import Prompt
from homing.ext_proc.kv_wire import TokenId

MIN_TOKENS = 512
"""Prompts whose unknown part is shorter are not worth a question."""

MAX_BODY_BYTES = 524_288
MAX_QUEUE = 32
PAUSE_S = 0.2
"""Between two questions: at most five in a second."""

TIMEOUT_S = 5.0

_RENDERED = (
    "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"
)  # fmt: skip
"""What the template is given, of a chat request's members."""


class Learning(StrEnum):
    """What came of a prompt that was to be learned: the values of homing_prompts_learned_total's label `outcome`."""

    LEARNED = "learned"
    FAILED = "failed"
    REFUSED = "refused"  # not a chat in OpenAI's shape, or not one that the engine takes
    DROPPED = "dropped"


_ABSENT = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    chat_template: msgspec.Raw = _ABSENT
    chat_template_kwargs: msgspec.Raw = _ABSENT
    add_generation_prompt: msgspec.Raw = _ABSENT
    continue_final_message: msgspec.Raw = _ABSENT
    cache_salt: str | None = None


class _Tokenized(msgspec.Struct):
    tokens: list[TokenId]


class Sent(msgspec.Struct, frozen=True):
    """A prompt that was just sent to `place`, which is at `address` and calls its model `model`."""

    place: Place
    address: str
    model: str
    prompt: Prompt
    body: bytes


class Learner:
    """`offer` is called for each placed prompt and returns at once; `run` asks."""

    def __init__(self, index: Index, pause_s: float = PAUSE_S, trust: EngineTrust | None = None) -> None:
        """`trust`: None where all engines speak plain HTTP."""
        self._trust = trust or plain()
        self.outcomes: Counter[tuple[str, Learning]] = Counter()  # (pool, outcome)
        self._index = index
        self._pause_s = pause_s
        self._queue: asyncio.Queue[Sent] = asyncio.Queue(MAX_QUEUE)

    def offer(self, sent: Sent) -> None:
        pool_id = sent.place[0]
        if self._index.unlearned(pool_id, sent.prompt) < MIN_TOKENS:
            return
        if len(sent.body) > MAX_BODY_BYTES or self._queue.full():
            self.outcomes[pool_id, Learning.DROPPED] += 1
            return
        self._queue.put_nowait(sent)

    async def run(self) -> None:
        """Until cancelled."""
        transport = EngineTransport(self._trust)
        async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S, trust_env=False) as client:
            while True:
                sent = await self._queue.get()
                # the one before it may have begun with the same messages
                if self._index.unlearned(sent.place[0], sent.prompt) >= MIN_TOKENS:
                    self.outcomes[sent.place[0], await self._learn(client, sent)] += 1
                    await asyncio.sleep(self._pause_s)

    async def _learn(self, client: httpx.AsyncClient, sent: Sent) -> Learning:
        try:
            body = msgspec.json.decode(sent.body, type=_Body)
        except (msgspec.DecodeError, RecursionError):
            return Learning.REFUSED
        if not _there(body.messages) or _there(body.system):  # not a chat in OpenAI's shape
            return Learning.REFUSED
        try:
            url = f"http://{sent.address}/tokenize"
            answer = await client.post(
                url, content=_question(body, sent.model), headers={"content-type": "application/json"}
            )
        except (httpx.HTTPError, httpx.InvalidURL):
            return Learning.FAILED
        if answer.status_code != 200:
            return Learning.REFUSED if answer.status_code < 500 else Learning.FAILED
        sizes, salt = self._index.pool(sent.place[0]).blocks.block_sizes, (body.cache_salt or "").encode()
        try:
            chains, total = await asyncio.to_thread(_chains, answer.content, sizes, salt)
        except msgspec.DecodeError:
            return Learning.FAILED
        self._index.pool(sent.place[0]).learned.learn(sent.prompt, chains, total)
        return Learning.LEARNED


def _there(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def _question(body: _Body, model: str) -> bytes:
    members = {name: raw for name in _RENDERED if _there(raw := getattr(body, name))}
    return msgspec.json.encode({"model": model, **members})


def _chains(answer: bytes, sizes: Iterable[int], salt: bytes) -> tuple[Chains, int]:
    """In a thread: some milliseconds for a long prompt. Raises msgspec.DecodeError."""
    tokens = msgspec.json.decode(answer, type=_Tokenized).tokens
    return {size: array("Q", chain(tokens, size, salt)) for size in sizes}, len(tokens)
