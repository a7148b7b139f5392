"""What is on its way to each replica: as this picker sees it, and as its siblings and the engines say.

A picker's own part is a Vector for each place; pickers send each other theirs every 100 ms, and each adds up what the
others said. A sibling that falls silent counts for nothing after a second: better no news than old news. But the tokens
that siblings have sent wait in the queue, and drain there, as if they had been sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from homing.core.placement.activity import Activity
from homing.core.placement.queue import Queue
from homing.core.placement.retention import Retention
from homing.core.placement.speed import Speed
from homing.core.placement.underway import Underway

Place = tuple[str, str]
"""(pool id, replica id)"""

VALID_S = 1.0
"""So long a sibling's vectors count without news from it."""


MAX_SILENT = 64
"""Siblings that may speak again. A picker that restarts has another name."""


URGENT_TOKENS = 2000.0
"""A request with so many to be prefilled keeps an engine busy for a quarter of a second: siblings that do not know of
it would choose the same replica. And no engine can be sent many of them in that time, so telling them is cheap."""


class Vector(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One picker's part in the load of one replica. Fields are only ever added at the end."""

    pending_tokens: float = 0.0  # to be prefilled, for requests whose first token has not come
    in_flight: int = 0
    sessions: int = 0  # active lately
    working_set_tokens: float = 0.0  # their contexts
    prefilled_tokens: float = 0.0  # what was learned of its speed from outcomes that came here: so many tokens
    prefill_seconds: float = 0.0  # took so long
    sent_bytes: int = 0  # of request bodies, ever
    context_tokens: float = 0.0  # of the prompts in flight
    arrived_tokens: float = 0.0  # to be prefilled, of all requests ever; 0: a former version, which does not tell
    heard_ago_s: float = 0.0  # the newest first token of a request of its own, if it has just heard of that; else 0
    waited_tokens: float = 0.0  # at that moment
    uncached_tokens: float = 0.0  # of the prompts in flight: no more can be pending


class Meter:
    """The load of one replica. `others_*`: what the siblings have there, added up; their tokens are in the queue."""

    __slots__ = (
        "_heard", "_unread_bytes", "activity", "assumed_speed", "cache_tokens", "context_tokens", "foreign",
        "in_flight", "others_context", "others_in_flight", "others_pending", "others_sessions", "others_tokens",
        "others_uncached", "queue", "retention", "sent_bytes", "speed", "uncached_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_flight = 0
        self.context_tokens = 0.0  # of the prompts in flight
        self.uncached_tokens = 0.0  # of these, what was not cached
        self.queue = Queue()
        self.speed = Speed()
        self.retention = Retention()
        self.activity = Activity()
        self.assumed_speed = 8000.0  # tokens per second, from the pool; kept up to date by who places
        self.cache_tokens: float | None = None  # as its engine says
        self.foreign = 0.0  # tokens that wait there and were sent by nobody that we know
        self.others_pending = 0.0  # of siblings that do not tell what they send
        self.others_in_flight = 0
        self.others_sessions = 0
        self.others_tokens = 0.0
        self.others_context = 0.0
        self.others_uncached = 0.0
        self.sent_bytes = 0
        self._unread_bytes = 0
        self._heard: tuple[float, float, float] | None = None  # when, of which moment, what waited then

    @property
    def tokens_per_s(self) -> float:
        return self.speed.learned(self.assumed_speed)

    def begin(self, tokens: float, now: float, context: float = 0.0) -> float:
        """As `Load.begin`."""
        in_queue = self.in_queue(self.speed.learned(self.assumed_speed), now)
        self.in_flight += 1
        self.context_tokens += context
        self.uncached_tokens += tokens
        return self.queue.append(tokens, now, in_queue)

    def end(self, tokens: float, context: float) -> None:
        """As `Load.end`."""
        self.in_flight -= 1
        self.context_tokens = max(0.0, self.context_tokens - context) if self.in_flight else 0.0
        self.uncached_tokens = max(0.0, self.uncached_tokens - tokens) if self.in_flight else 0.0

    def in_queue(self, tokens_per_s: float, now: float) -> float:
        """Tokens that wait, of those that pickers have sent. Whose answer has ended does not wait: that says how little
        it is where nothing tells of first tokens, as where answers are not streamed."""
        return min(self.queue.waiting(now, tokens_per_s), self.uncached_tokens + self.others_uncached)

    def waiting(self, now: float) -> float:
        """Tokens to be prefilled before a request that comes now."""
        return self.waiting_at(self.speed.learned(self.assumed_speed), now)

    def waiting_at(self, tokens_per_s: float, now: float) -> float:
        """The same for who has asked for the speed already."""
        return self.in_queue(tokens_per_s, now) + self.others_pending + self.foreign

    def vector(self, now: float) -> Vector:
        """In whole tokens: half as long on the wire."""
        self.activity.advance(now)
        told, at, waited = self._heard or (-VALID_S, 0.0, 0.0)
        new = now - told < VALID_S
        tokens, seconds = self.speed.own
        return Vector(
            pending_tokens=int(min(self.queue.own_waiting(now, self.tokens_per_s), self.uncached_tokens)),
            in_flight=self.in_flight,
            sessions=self.activity.sessions,
            working_set_tokens=int(self.activity.tokens),
            prefilled_tokens=tokens,
            prefill_seconds=seconds,
            sent_bytes=self.sent_bytes,
            context_tokens=int(self.context_tokens),
            arrived_tokens=int(self.queue.own),
            heard_ago_s=max(0.0, now - at) if new else 0,
            waited_tokens=int(waited) if new else 0,
            uncached_tokens=int(self.uncached_tokens),
        )

    def first_token(self, mark: float, at: float, now: float) -> None:
        """What ends at `mark` in the queue had been served at `at`. Siblings are told, for a while."""
        waited = self.queue.first_token(mark, at)
        if waited is not None:
            self._heard = now, at, max(0.0, waited)

    def hear(self, new: Vector, before: Vector, now: float) -> None:
        """A sibling's word, in place of its last."""
        if new.arrived_tokens > before.arrived_tokens:
            # of one that speaks for the first time: what is still there of what it has sent
            came = new.arrived_tokens - before.arrived_tokens if before.arrived_tokens else new.pending_tokens
            self.queue.add_others(came, now, self.tokens_per_s)
        if new.heard_ago_s:
            self.queue.waited(new.waited_tokens, now - new.heard_ago_s)
        self.others_pending = max(0.0, self.others_pending + _not_told(new) - _not_told(before))
        self.others_in_flight += new.in_flight - before.in_flight
        self.others_sessions += new.sessions - before.sessions
        self.others_context = max(0.0, self.others_context + new.context_tokens - before.context_tokens)
        self.others_uncached = max(0.0, self.others_uncached + new.uncached_tokens - before.uncached_tokens)
        self.others_tokens = max(0.0, self.others_tokens + new.working_set_tokens - before.working_set_tokens)
        self.speed.hear(new.prefilled_tokens - before.prefilled_tokens, new.prefill_seconds - before.prefill_seconds)
        if before.sent_bytes:  # not what it had sent before we heard of it
            self._unread_bytes += max(0, new.sent_bytes - before.sent_bytes)

    def sent(self, size_bytes: int) -> None:
        """A request with a body of so many bytes is on its way."""
        self.sent_bytes += size_bytes
        self._unread_bytes += size_bytes

    def take_bytes(self) -> int:
        """Bytes sent there by anybody of us since the last call."""
        unread, self._unread_bytes = self._unread_bytes, 0
        return unread

    def engine_waits(self, requests: int, tokens_each: float, now: float) -> None:
        """The engine has so many requests waiting, of about so many tokens each. No more can be pending than the
        largest of what was sent; and what is too little for them was sent by somebody that nobody knows."""
        speed = self.tokens_per_s
        self.queue.at_most(requests, now, speed)
        self.foreign = max(0.0, 0.5 * requests * tokens_each - self.in_queue(speed, now) - self.others_pending)


def _not_told(vector: Vector) -> float:
    """Pending tokens of a sibling that does not tell what it sends."""
    return 0.0 if vector.arrived_tokens else vector.pending_tokens


NOTHING = Vector()


class Load:
    """Meters by place. One `begin` for each request, one `end` when its answer has ended."""

    __slots__ = ("_hasty", "_meters", "_siblings", "_silent", "underway")

    def __init__(self) -> None:
        self.underway = Underway()
        self._meters: dict[Place, Meter] = {}
        self._hasty: list[Callable[[], None]] = []
        self._siblings: dict[str, tuple[float, Mapping[Place, Vector]]] = {}
        self._silent: dict[str, Mapping[Place, Vector]] = {}  # what they had sent, so that it counts once

    @property
    def replicas(self) -> int:
        """Of how many there may be something to tell."""
        return len(self._meters)

    def when_urgent(self, call: Callable[[], None]) -> None:
        """To be called from now on whenever siblings should not wait for their next word."""
        self._hasty.append(call)

    def begun(self, tokens: float) -> None:
        """A request is on its way of which so many are not cached."""
        if tokens >= URGENT_TOKENS:
            for call in self._hasty:
                call()

    def meter(self, place: Place) -> Meter:
        meter = self._meters.get(place)
        if meter is None:
            meter = self._meters[place] = Meter()
        return meter

    def begin(self, place: Place, tokens: float = 0.0, now: float = 0.0, context: float = 0.0) -> float:
        """A request with a prompt of `context` tokens, of which `tokens` are not cached. Where it ends in the queue,
        for `Queue.first_token`."""
        return self.meter(place).begin(tokens, now, context)

    def end(self, place: Place, tokens: float = 0.0, context: float = 0.0) -> None:
        """Both as at its beginning."""
        meter = self._meters.get(place)
        if meter is not None and meter.in_flight > 0:
            meter.end(tokens, context)

    def in_flight(self, place: Place) -> int:
        """This picker's own."""
        meter = self._meters.get(place)
        return meter.in_flight if meter is not None else 0

    def snapshot(self) -> dict[Place, int]:
        """Requests in flight, where there are any."""
        return {place: meter.in_flight for place, meter in self._meters.items() if meter.in_flight}

    def forget(self, place: Place) -> None:
        """The replica is gone for good, or has restarted under its old name: what was known of it is no more."""
        before = self._meters.pop(place, None)
        if before is None:
            return
        others = _others(before)
        if (
            before.in_flight or others != NOTHING
        ):  # those streams still end, and siblings still take back what they said
            after = self.meter(place)
            after.in_flight, after.context_tokens = before.in_flight, before.context_tokens
            after.uncached_tokens = before.uncached_tokens
            after.queue = Queue(before.queue.own)
            after.hear(others, NOTHING, 0.0)

    def vectors(self, now: float) -> dict[Place, Vector]:
        """This picker's own part, for its siblings: nothing of what they said is in it."""
        self._expire(now)
        parts = {place: meter.vector(now) for place, meter in self._meters.items()}
        return {place: vector for place, vector in parts.items() if vector != NOTHING}

    def absorb(self, sibling: str, vectors: Mapping[Place, Vector], now: float) -> None:
        """`sibling` said so at `now`, by this picker's clock; it replaces what it said before. Words that came by two
        ways may come late: the older of two is left alone."""
        self._expire(now)
        if (known := self._siblings.get(sibling)) is None:
            before = self._silent.pop(sibling, {})
        else:
            before = known[1]
            if any(v.arrived_tokens < before.get(place, NOTHING).arrived_tokens for place, v in vectors.items()):
                return
        self._siblings[sibling] = (now, vectors)
        self._replace(before, vectors, now)

    def others(self, place: Place) -> Vector:
        """What the siblings have there, added up."""
        meter = self._meters.get(place)
        return NOTHING if meter is None else _others(meter)

    def _replace(self, before: Mapping[Place, Vector], after: Mapping[Place, Vector], now: float) -> None:
        for place, vector in after.items():
            if vector != (known := before.get(place, NOTHING)):
                self.meter(place).hear(vector, known, now)
        for place in before.keys() - after.keys():
            self.meter(place).hear(NOTHING, before[place], now)

    def _expire(self, now: float) -> None:
        for sibling in [s for s, (said, _) in self._siblings.items() if now - said >= VALID_S]:
            _, vectors = self._siblings.pop(sibling)
            sent = {place: Vector(arrived_tokens=vector.arrived_tokens) for place, vector in vectors.items()}
            self._replace(vectors, sent, now)
            self._silent[sibling] = sent
            if len(self._silent) > MAX_SILENT:
                del self._silent[next(iter(self._silent))]


def _others(meter: Meter) -> Vector:
    return Vector(
        meter.others_pending,
        meter.others_in_flight,
        meter.others_sessions,
        meter.others_tokens,
        context_tokens=meter.others_context,
        uncached_tokens=meter.others_uncached,
    )
