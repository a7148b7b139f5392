"""Sends what is planned: probes, then the two runs, and keeps to the caps on the way."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from homing.cli.verify.engines import Scraper
from homing.cli.verify.gateway import Gateway
from homing.core.verify.conversation import Conversation, Message, Prompt, size
from homing.core.verify.observed import Answer, Engines, Observation, Probes, since, who_served
from homing.core.verify.plan import CHARACTERS_PER_TOKEN, Caps, Plan, Run
from homing.core.verify.words import words

PROBES = 8
"""With one id, and as many with an id each: of two replicas, chance sends so many to one of them in 1 of 128 cases."""

KEYS = ("x-user-id", "x-session-affinity", "session-id", "x-conversation-id", "cookie", "authorization")
"""Other headers that a gateway may have been told to hash."""

KEY_PROBES = 6
TELLING = 1000
"""Characters from which on a prompt tells how many make a token."""

COUNTED_S = 1.0
"""So long an engine may take to count a request that it has answered."""

PAUSE_S = 0.02
HOPELESS = 8
"""So many failures and no answer end a run."""

Advance = Callable[[int], object]


@dataclass(slots=True)
class Budget:
    """What has been spent, and how much of the caps may be spent by now: the first run gets half of what the probes
    leave, so that the second can send as much."""

    caps: Caps
    requests: int = 0
    tokens: int = 0
    _now: Caps | None = None
    _characters: int = 0
    _told: int = 0

    @property
    def characters_per_token(self) -> float:
        """As the engines have told, once they have."""
        return self._characters / self._told if self._told else CHARACTERS_PER_TOKEN

    def open(self, share: float) -> None:
        """From now on, until it is opened wider: that share of what is left."""
        left = Caps(self.caps.requests - self.requests, self.caps.tokens - self.tokens)
        self._now = Caps(self.requests + int(left.requests * share), self.tokens + int(left.tokens * share))

    def allows(self, prompt: Prompt, answer_tokens: int, requests: int = 1) -> bool:
        """So many of these."""
        caps = self._now or self.caps
        needed = requests * (round(size(prompt) / self.characters_per_token) + answer_tokens)
        return self.requests + requests <= caps.requests and self.tokens + needed <= caps.tokens

    def spend(self, prompt: Prompt, answer_tokens: int) -> int:
        """When it is sent: others that are sent meanwhile must know. Returns the tokens that its prompt counts for."""
        estimated = round(size(prompt) / self.characters_per_token)
        self.requests += 1
        self.tokens += estimated + answer_tokens
        return estimated

    def correct(self, prompt: Prompt, estimated: int, answer: Answer) -> None:
        """By what the answer says that its prompt took. Of a short one most is the template's."""
        if answer.prompt_tokens is None:
            return
        self.tokens += answer.prompt_tokens - estimated
        if size(prompt) >= TELLING:
            self._characters += size(prompt)
            self._told += answer.prompt_tokens


@dataclass(slots=True)
class Measured:
    first: list[Answer] = field(default_factory=list)
    probes: Probes = field(default_factory=Probes)
    observations: list[Observation] = field(default_factory=list)
    states: dict[Run, tuple[Engines, Engines]] = field(default_factory=dict)
    issues: bool = False
    capped: bool = False
    """A cap ended a run before its plan."""


class Measurement:
    """One measurement of `model` behind `gateway`."""

    def __init__(self, gateway: Gateway, scraper: Scraper, model: str, budget: Budget, answer_tokens: int) -> None:
        self.measured = Measured()
        self._gateway = gateway
        self._scraper = scraper
        self._model = model
        self._budget = budget
        self._answer_tokens = answer_tokens
        self._only_issued = False
        self._ids: list[str] = []

    async def probe(self, advance: Advance) -> bool:
        """Who serves one session, and sessions of their own. False where the gateway does not answer as it should."""
        first = await self._send(_small("first", 0), 1, None, last=False)
        self.measured.first.append(first)
        advance(1)
        if not first.good:
            return False
        self.measured.issues = first.session is not None
        session = first.session or _own()
        same = [await self._who(_small("same", i), session, advance, last=i == PROBES - 1) for i in range(PROBES)]
        fresh = [await self._stranger(_small("fresh", i), advance) for i in range(PROBES)]
        homes = {name for name in same if name is not None}
        by_header = await self._keys() if len(homes) > 1 and not self.measured.issues else {}
        self.measured.probes = Probes(tuple(same), tuple(fresh), by_header)
        return True

    async def run(self, run: Run, plan: Plan, salt: str, concurrency: int, advance: Advance) -> None:
        """All conversations, `concurrency` at once, each turn after the turn before."""
        if run is Run.SCATTERED and self._only_issued:
            await self._fetch_ids(sum(len(conversation.turns) for conversation in plan.conversations))
        self._budget.open(0.5 if run is Run.SCATTERED else 1.0)
        # so that neither run opens connections while it is timed
        await asyncio.gather(*(self._gateway.models() for _ in range(concurrency)))
        before = await self._scraper.all()
        waiting = iter(enumerate(conversation.salted(salt) for conversation in plan.conversations))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(self._work(run, waiting, advance))
        answered = sum(o.run is run and o.answer.good for o in self.measured.observations)
        self.measured.states[run] = (before, await self._settled(before, answered))

    async def _work(self, run: Run, waiting: Iterator[tuple[int, Conversation]], advance: Advance) -> None:
        for number, conversation in waiting:
            if not await self._converse(run, number, conversation, advance):
                return

    async def _converse(self, run: Run, number: int, conversation: Conversation, advance: Advance) -> bool:
        """False where the run is to end."""
        session = None if self.measured.issues else _own()
        for turn, prompt in enumerate(conversation.turns, 1):
            if not self._budget.allows(prompt, self._answer_tokens):
                self.measured.capped = True
                return False
            sent = await self._fresh() if run is Run.SCATTERED else session
            last = run is Run.SCATTERED or turn == len(conversation.turns)
            answer = await self._send(prompt, self._answer_tokens, sent, last=last)
            self.measured.observations.append(Observation(run, number, turn, sent, answer))
            session = session or answer.session
            advance(1)
        return not self._hopeless(run)

    def _hopeless(self, run: Run) -> bool:
        answers = [o.answer for o in self.measured.observations if o.run is run]
        return len(answers) >= HOPELESS and not any(answer.good for answer in answers)

    async def _fresh(self) -> str | None:
        """Another id with every call: the turns of a conversation go where the hash says of each, which is anywhere."""
        if not self._only_issued:
            return _as_issued()
        return self._ids.pop() if self._ids else await self._gateway.issued()

    async def _fetch_ids(self, count: int) -> None:
        """Of sessions that the gateway began: an id that it only named, in answer to no turn, is a new session's to it,
        and such a one homing places by its prompt."""
        while len(self._ids) < count and self._budget.allows(_small("id", 0), 1):
            answer = await self._send(_small("id", len(self._ids)), 1, None, last=False)
            if answer.session is None:
                return
            self._ids.append(answer.session)

    async def _stranger(self, prompt: Prompt, advance: Advance) -> str | None:
        """Who served a small request with an id of its own. A gateway that signs its ids refuses others: then each
        comes from itself."""
        served = await self._who(prompt, await self._fresh(), advance, last=True)
        if self.measured.first[-1].status == 401 and self.measured.issues and not self._only_issued:
            self._only_issued = True
            del self.measured.first[-1]
            served = await self._who(prompt, await self._fresh(), _nothing, last=True)
        return served

    async def _who(
        self, prompt: Prompt, session: str | None, advance: Advance, *, last: bool, header: str | None = None
    ) -> str | None:
        """By the answer's header, where it names an engine that is known; else by who has counted one request more."""
        before = await self._scraper.all()
        answer = await self._send(prompt, 1, session, last=last, header=header)
        self.measured.first.append(answer)
        advance(1)
        if answer.replica is not None and (not before or answer.replica in before):
            return answer.replica
        return who_served(await self._settled(before, 1), before) if answer.good and before else None

    async def _keys(self) -> Mapping[str, tuple[str | None, ...]]:
        """Who serves requests with one value under each of the other headers, until one sticks."""
        found: dict[str, tuple[str | None, ...]] = {}
        for header in KEYS:
            if header == "authorization" and self._gateway.target.key is not None:
                continue
            if not self._budget.allows(_small(header, 0), 1, requests=KEY_PROBES):
                break
            value = f"homing={_own()}" if header == "cookie" else _own()
            found[header] = tuple(
                [
                    await self._who(_small(header, i), value, _nothing, last=True, header=header)
                    for i in range(KEY_PROBES)
                ]
            )
            if Probes(by_header={header: found[header]}).sticking() is not None:
                break
        return found

    async def _send(
        self, prompt: Prompt, tokens: int, session: str | None, *, last: bool, header: str | None = None
    ) -> Answer:
        estimated = self._budget.spend(prompt, tokens)
        answer = await self._gateway.ask(self._model, prompt, tokens, session, last=last, header=header)
        self._budget.correct(prompt, estimated, answer)
        return answer

    async def _settled(self, before: Engines, answered: int) -> Engines:
        """The counters once they have all that was answered, or have had time enough; at once where there are none."""
        counts = any(counters is not None and counters.queried is not None for counters in before.values())
        deadline = time.monotonic() + (COUNTED_S if counts else 0.0)
        while True:
            after = await self._scraper.all()
            served = sum(c.served for c in since(after, before).values() if c is not None)
            if served >= answered or time.monotonic() > deadline:
                return after
            await asyncio.sleep(PAUSE_S)


def probes_of_a_plan() -> int:
    return 1 + 2 * PROBES


def _small(kind: str, number: int) -> Prompt:
    return (Message("user", f"Say one word. {words(12, number, kind, uuid.uuid4())}"),)


def _own() -> str:
    """An id as clients choose them."""
    return str(uuid.uuid4())


def _as_issued() -> str:
    """One in the form of those that homing issues (core/placement/minting.py): it goes where its hash says, while the
    prompt of a session that a client begins under an id of its own is looked for in the caches."""
    return f"{_own()}-0"


def _nothing(_: int) -> None: ...
