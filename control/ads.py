"""One aggregated discovery stream (state of the world) as a state machine: events in, outputs out, no I/O.

The rules, from Envoy's docs/root/api-docs/xds_protocol.rst, all follow from one comparison. For each type the
machine knows the version that the client was told last (or says it has, on the first request of a stream), and
the version that it should have. It sends if and only if these two differ:

- the version of a whole-state type (CDS, LDS) with a wildcard is the version of the snapshot's set;
- any other version also names what it was made from: the subscribed names, and the version of the type that refers
  to this one. So a changed subscription is answered, a cluster update is followed by a fresh EDS even if unchanged
  (or the cluster would stay in warming), and both hold across a reconnect, where the server remembers nothing;
- a rejected (NACKed) version counts as told: silence until there is another one;
- a response to EDS or RDS without resources says nothing to the client, so it is not sent.

A request with a stale nonce is dropped: the client's next request carries its whole subscription again.
No response waits for an earlier one's acknowledgement: Envoy holds back the ACK of CDS while a cluster warms
(ClusterManagerImpl::updateClusterCounts), and the next snapshot may be what ends the warming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

from homing.control.snapshot import CDS, EDS, LDS, ORDER, RDS, Snapshot

WHOLE_STATE = frozenset({CDS, LDS})
"""Types whose response is the full state (absence deletes) and that know the wildcard subscription."""

REFERRER = {EDS: CDS, RDS: LDS}
"""Which type refers to the resources of another."""

REMOVAL_ORDER = (LDS, RDS, CDS, EDS)
"""Break after make: a cluster leaves when no route leads to it any more."""


@dataclass(frozen=True, slots=True)
class DiscoveryRequested:
    """The client sent a request: a subscription, an ACK (no error) or a NACK (`error`: the text of error_detail)."""

    type_url: str
    version_info: str = ""
    response_nonce: str = ""
    resource_names: tuple[str, ...] = ()
    error: str | None = None

    def enter(self, stream: AdsStream) -> tuple[Output, ...]:
        return stream.requested(self)


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    """There is a newer snapshot. Older ones that were never sent do not matter any more."""

    snapshot: Snapshot

    def enter(self, stream: AdsStream) -> tuple[Output, ...]:
        return stream.published(self.snapshot)


@dataclass(frozen=True, slots=True)
class Send:
    """Write this response."""

    type_url: str
    version: str
    nonce: str
    resources: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Acked:
    type_url: str
    version: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client keeps what it had. `error` is its reason."""

    type_url: str
    version: str
    nonce: str
    error: str


Event = DiscoveryRequested | SnapshotPublished
Output = Send | Acked | Nacked


@dataclass(frozen=True, slots=True)
class Subscription:
    names: frozenset[str] = frozenset()
    wildcard: bool = False
    named: bool = False  # whether this stream ever named a resource of the type: an empty list then means "nothing"

    def requested(self, type_url: str, names: tuple[str, ...]) -> Subscription:
        """The subscription after a request that lists `names`."""
        named = self.named or bool(names)
        whole = type_url in WHOLE_STATE
        wildcard = whole and ("*" in names or not named)
        return Subscription(frozenset(names) - {"*"} if whole else frozenset(names), wildcard, named)

    def covers(self, name: str) -> bool:
        return self.wildcard or name in self.names

    @property
    def empty(self) -> bool:
        return not (self.wildcard or self.names)


class Answer(StrEnum):
    """What the client said to the newest response of a type."""

    PENDING = "pending"
    ACKED = "acked"
    NACKED = "nacked"


@dataclass(frozen=True, slots=True)
class TypeState:
    """What one stream knows of one type. Empty strings stand for "none yet"."""

    subscription: Subscription = Subscription()
    told: str = ""  # version of the newest response; on a fresh stream the version that the client says it has
    accepted: str = ""  # the version that the client works with
    nonce: str = ""
    answer: Answer = Answer.ACKED
    error: str = ""


class AdsStream:
    """The server's side of one stream. Not shared between streams; lives as long as its stream."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._types: dict[str, TypeState] = {}
        self._last_nonce = 0

    @property
    def types(self) -> Mapping[str, TypeState]:
        """State by type, for the types the client asked for."""
        return self._types

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    @property
    def answer(self) -> Answer:
        """What the client said to the newest snapshot as a whole; ACKED where there was nothing to tell it."""
        answers = {state.answer for state in self._types.values()}
        return next((a for a in (Answer.NACKED, Answer.PENDING) if a in answers), Answer.ACKED)

    def receive(self, event: Event) -> tuple[Output, ...]:
        """What follows from `event`, in the order in which it must be done."""
        return event.enter(self)

    def requested(self, request: DiscoveryRequested) -> tuple[Output, ...]:
        if request.type_url not in ORDER:
            return ()  # a type we do not serve: the client may ask, and waits
        known = self._types.get(request.type_url)
        judged: tuple[Output, ...] = ()
        if known is None:
            state = TypeState(told=request.version_info, accepted=request.version_info)
        elif request.response_nonce != known.nonce:
            return ()
        else:
            state, judged = _judged(known, request)
        subscription = state.subscription.requested(request.type_url, request.resource_names)
        self._types[request.type_url] = replace(state, subscription=subscription)
        return judged + self._told(request.type_url)

    def published(self, snapshot: Snapshot) -> tuple[Output, ...]:
        before, self._snapshot = self._snapshot, snapshot
        order = REMOVAL_ORDER if before is not None and removes(before, snapshot) else ORDER
        return tuple(output for type_url in order if type_url in self._types for output in self._told(type_url))

    def _told(self, type_url: str) -> tuple[Output, ...]:
        """The response that brings the client up to date; nothing if it is, or if there is nothing to say."""
        if self._snapshot is None:
            return ()
        state = self._types[type_url]
        wanted = _version(self._snapshot, type_url, state.subscription)
        if wanted == state.told:
            return ()
        if not wanted:
            # Forgotten, so that what is subscribed again later is sent again.
            self._types[type_url] = replace(state, told="", answer=Answer.ACKED)
            return ()
        self._last_nonce += 1
        nonce = str(self._last_nonce)
        self._types[type_url] = replace(state, told=wanted, nonce=nonce, answer=Answer.PENDING)
        return (Send(type_url, wanted, nonce, _covered(self._snapshot, type_url, state.subscription)),)


def _judged(state: TypeState, request: DiscoveryRequested) -> tuple[TypeState, tuple[Output, ...]]:
    """The state after the first request with the nonce of the newest response; later ones only change names."""
    if state.answer is not Answer.PENDING:
        return state, ()
    if request.error is not None:
        nacked = Nacked(request.type_url, state.told, state.nonce, request.error)
        return replace(state, answer=Answer.NACKED, error=request.error), (nacked,)
    acked = Acked(request.type_url, state.told, state.nonce)
    return replace(state, answer=Answer.ACKED, accepted=state.told, error=""), (acked,)


def _covered(snapshot: Snapshot, type_url: str, subscription: Subscription) -> tuple[tuple[str, bytes], ...]:
    by_name = snapshot.types[type_url].by_name
    return tuple((name, by_name[name]) for name in sorted(by_name) if subscription.covers(name))


def _version(snapshot: Snapshot, type_url: str, subscription: Subscription) -> str:
    """The version that a client with this subscription should have; empty if there is nothing to tell it."""
    own = snapshot.types[type_url]
    if subscription.empty or (type_url in REFERRER and subscription.names.isdisjoint(own.by_name)):
        return ""
    if subscription.wildcard:
        return own.version
    digest = blake2b(digest_size=4)
    if type_url in REFERRER:
        digest.update(snapshot.types[REFERRER[type_url]].version.encode())
    for name in sorted(subscription.names):
        digest.update(len(name).to_bytes(4) + name.encode())
    return f"{own.version}.{digest.hexdigest()}"


def removes(before: Snapshot, after: Snapshot) -> bool:
    """Whether a cluster leaves: then routes to it go first."""
    return not (before.types[CDS].by_name.keys() <= after.types[CDS].by_name.keys())
