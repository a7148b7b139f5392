"""One aggregated discovery stream (incremental) as a state machine: events in, outputs out, no I/O.

The rules, from Envoy's docs/root/api-docs/xds_protocol.rst, follow from one comparison, as in `ads`; here it is made
for each resource. The machine knows the version of every resource that the client was told last (or says it has, in the
first request of a type), and which it should have. What differs is sent; what it should not have any more is removed.

- a name that is subscribed to and does not exist is told as removed;
- a name that is subscribed to again is told again; so is one that is unsubscribed from under a wildcard;
- endpoints and routes have the version of what refers to them in theirs: a changed cluster gets fresh endpoints even
  if they are unchanged (or it would stay in warming), also across a reconnect;
- what a client rejected (NACKed) counts as told: silence until there is another version of the type. Then all that was
  in the rejected response is told again: the client took none of it, also what was good;
- the first request of a wildcard by a client that has nothing is answered, even if there is nothing.

Each response is answered for itself: a rejection counts also when there was a later response on its way. The changes
of subscription in a request count whatever its nonce is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from homing.control.ads import (
    REFERRER,
    REMOVAL_ORDER,
    WHOLE_STATE,
    Acked,
    Answer,
    Nacked,
    Subscription,
    TypeState,
    removes,
)
from homing.control.snapshot import ORDER, Snapshot

ABSENT = ""
"""The version of what does not exist."""

UNSURE = "?"
"""The version of what the client may or may not have: not that of anything."""

MAX_UNANSWERED = 64


@dataclass(frozen=True, slots=True)
class DeltaRequested:
    """The client sent a request: changes of its subscription, an ACK (no error) or a NACK. `initial_versions`: what it
    has from before, in the first request of a type."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: tuple[tuple[str, str], ...] = ()
    response_nonce: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SendDelta:
    """Write this response: (name, version, resource) of what changed, and names of what is gone."""

    type_url: str
    version: str
    nonce: str
    resources: tuple[tuple[str, str, bytes], ...]
    removed: tuple[str, ...]


DeltaOutput = SendDelta | Acked | Nacked


@dataclass(frozen=True, slots=True)
class _Response:
    """A response that is not answered yet: the names in it, and the type's version then."""

    nonce: str
    version: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Type:
    """What one stream knows of one type. `told`: versions by name; `refused`: names that were in a rejected response,
    with the type's version then."""

    state: TypeState
    told: Mapping[str, str]
    begun: bool = False  # whether anything was sent: the first wildcard is answered in any case
    unanswered: tuple[_Response, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def judged(self, request: DeltaRequested) -> _Type:
        """What an answer says of the response that it answers."""
        at = next((i for i, r in enumerate(self.unanswered) if r.nonce == request.response_nonce), None)
        if at is None:
            return self
        answered, later = self.unanswered[at], self.unanswered[at + 1 :]
        refused = dict(self.refused)
        if request.error is not None:
            told_since = frozenset[str]().union(*(response.names for response in later))
            refused |= dict.fromkeys(answered.names - told_since, answered.version)
        return replace(self, unanswered=(*self.unanswered[:at], *later), refused=refused)

    def at(self, version: str) -> _Type:
        """With what was refused in another version than `version` as unsure."""
        again = {name: UNSURE for name, refused in self.refused.items() if refused != version}
        told = {name: UNSURE if name in again else v for name, v in self.told.items()} | again
        return replace(self, told=told, refused={n: v for n, v in self.refused.items() if n not in again})

    def sent(self, state: TypeState, told: Mapping[str, str], names: frozenset[str]) -> _Type:
        response = _Response(state.nonce, state.told, names)
        refused = {n: v for n, v in self.refused.items() if n not in names}
        return _Type(state, told, True, (*self.unanswered, response)[-MAX_UNANSWERED:], refused)


class DeltaStream:
    """The server's side of one stream. Not shared between streams; lives as long as its stream."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._types: dict[str, _Type] = {}
        self._last_nonce = 0

    @property
    def types(self) -> Mapping[str, TypeState]:
        """State by type, for the types the client asked for."""
        return {type_url: known.state for type_url, known in self._types.items()}

    @property
    def answer(self) -> Answer:
        """What the client said to the newest snapshot as a whole; ACKED where there was nothing to tell it."""
        answers = {known.state.answer for known in self._types.values()}
        return next((a for a in (Answer.NACKED, Answer.PENDING) if a in answers), Answer.ACKED)

    def requested(self, request: DeltaRequested) -> tuple[DeltaOutput, ...]:
        if request.type_url not in ORDER:
            return ()  # a type we do not serve: the client may ask, and waits
        known = self._types.get(request.type_url)
        judged: tuple[DeltaOutput, ...] = ()
        if known is None:
            known = _Type(TypeState(), dict(request.initial_versions))
            known = _subscribed(known, request, first=True)
        else:
            known = known.judged(request)
            if request.response_nonce and request.response_nonce == known.state.nonce:
                state, judged = _judged(known.state, request)
                known = replace(known, state=state)
            known = _subscribed(known, request, first=False)
        self._types[request.type_url] = known
        return judged + self._told(request.type_url)

    def published(self, snapshot: Snapshot) -> tuple[DeltaOutput, ...]:
        before, self._snapshot = self._snapshot, snapshot
        order = REMOVAL_ORDER if before is not None and removes(before, snapshot) else ORDER
        return tuple(output for type_url in order if type_url in self._types for output in self._told(type_url))

    def _told(self, type_url: str) -> tuple[DeltaOutput, ...]:
        if self._snapshot is None:
            return ()
        known = self._types[type_url].at(self._snapshot.types[type_url].version)
        subscription = known.state.subscription
        wanted = _wanted(self._snapshot, type_url, subscription, known.told)
        changed = tuple(n for n in sorted(wanted) if wanted[n] != known.told.get(n))
        first_wildcard = subscription.wildcard and not known.begun and not known.told
        # What a wildcard's client never had need not be removed.
        gone = tuple(n for n in changed if wanted[n] == ABSENT and (n in known.told or n in subscription.names))
        there = tuple(n for n in changed if wanted[n] != ABSENT)
        told = {n: v for n, v in wanted.items() if v != ABSENT or n in subscription.names}
        if not (there or gone or first_wildcard):
            # Nothing that was refused concerns it any more: unsubscribed from, or told since.
            settled = known.state.answer is Answer.NACKED and not known.refused
            state = replace(known.state, answer=Answer.ACKED) if settled else known.state
            self._types[type_url] = replace(known, state=state, told=told)
            return ()
        self._last_nonce += 1
        nonce, resources = str(self._last_nonce), self._snapshot.types[type_url]
        state = replace(known.state, told=resources.version, nonce=nonce, answer=Answer.PENDING)
        self._types[type_url] = known.sent(state, told, frozenset((*there, *gone)))
        sent = tuple((n, wanted[n], resources.by_name[n]) for n in there)
        return (SendDelta(type_url, resources.version, nonce, sent, gone),)


def _judged(state: TypeState, request: DeltaRequested) -> tuple[TypeState, tuple[DeltaOutput, ...]]:
    if state.answer is not Answer.PENDING:
        return state, ()
    if request.error is not None:
        nacked = Nacked(request.type_url, state.told, state.nonce, request.error)
        return replace(state, answer=Answer.NACKED, error=request.error), (nacked,)
    acked = Acked(request.type_url, state.told, state.nonce)
    return replace(state, answer=Answer.ACKED, accepted=state.told, error=""), (acked,)


def _subscribed(known: _Type, request: DeltaRequested, *, first: bool) -> _Type:
    """The subscription after `request`; what is to be told anew is forgotten."""
    before = known.state.subscription
    added, dropped = frozenset(request.subscribe), frozenset(request.unsubscribe)
    whole = request.type_url in WHOLE_STATE
    wildcard = whole and ((before.wildcard and "*" not in dropped) or "*" in added or (first and not added))
    names = (before.names | added) - dropped - ({"*"} if whole else frozenset())
    subscription = Subscription(names, wildcard, before.named or bool(added))
    again = dropped if first else added | dropped
    told = {n: v for n, v in known.told.items() if n not in again and (subscription.covers(n))}
    refused = {n: v for n, v in known.refused.items() if n not in again and subscription.covers(n)}
    return replace(known, state=replace(known.state, subscription=subscription), told=told, refused=refused)


def _wanted(snapshot: Snapshot, type_url: str, subscription: Subscription, told: Mapping[str, str]) -> dict[str, str]:
    """The version that the client should have of each resource that concerns it."""
    resources = snapshot.types[type_url]
    wanted = dict.fromkeys((*subscription.names, *(n for n in told if subscription.wildcard)), ABSENT)
    referrer = snapshot.types[REFERRER[type_url]] if type_url in REFERRER else None
    for name in resources.by_name:
        if subscription.covers(name):
            version = resources.versions[name]
            if referrer is not None:
                # A route table does not bear the name of its listener: the whole type stands for it.
                version += "." + _short(referrer.versions.get(name, referrer.version))
            wanted[name] = version
    return wanted


def _short(version: str) -> str:
    return blake2b(version.encode(), digest_size=4).hexdigest()
