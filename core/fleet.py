"""Who serves what: replicas in pools, pools in a fleet.

A Fleet is frozen. Every change makes a new one, and its version is the hash of its content, so that two
processes that hold the same fleet say so by comparing one short string.

Life of a replica: JOINING -> READY -> DRAINING -> GONE. A GONE replica is not in the fleet.
Health is a second axis: a READY replica that fails its probes keeps its membership (the hash's size
follows membership) and leaves the hash's table until it answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Literal

import msgspec

from homing.core.template.record import Capabilities

HashPolicy = Literal["ring", "maglev", "ketama"]
Mode = Literal["off", "observe", "route", "full"]
MODES: tuple[Mode, ...] = ("off", "observe", "route", "full")
"""What is done for a pool, the least first."""


class State(StrEnum):
    JOINING = "joining"  # known, not yet proved fit to serve: takes no requests
    READY = "ready"
    DRAINING = "draining"  # serves its own sessions, takes no new ones


@dataclass(frozen=True, slots=True)
class Replica:
    """One vLLM engine. The hash is made of ids: an address may change without moving a session."""

    id: str
    address: str  # "ip:port", as Envoy knows the host; a name that does not resolve yet stays a name
    weight: int = 1
    state: State = State.READY
    healthy: bool = True
    adapters: tuple[str, ...] = ()  # LoRA adapters loaded here; none listed: all of the pool's
    rank: int | None = None  # one of several data-parallel ranks behind one address: `id` is then HOST-RANK
    epoch: int = 0  # when its process began, in ms since 1970; 0: not known. Another one: it is cold
    failing: bool = False  # it answers its probes and fails requests: no new sessions
    share: float = 1.0  # of the pool's new sessions it takes no more than that; pickers see to it, a hash does not
    tls: str = ""  # the name that its certificate has to bear; empty: it speaks plain HTTP

    @property
    def host(self) -> str:
        """The id of its address, which is Envoy's `hash_key`."""
        return self.id if self.rank is None else self.id.removesuffix(ranked("", self.rank))

    @property
    def in_hash(self) -> bool:
        """Whether Envoy's hash table holds it: draining and slow replicas do, dead and joining ones do not."""
        return self.healthy and self.state is not State.JOINING

    @property
    def takes_new_sessions(self) -> bool:
        return self.healthy and self.state is State.READY and not self.failing and self.share > 0


def ranked(host: str, rank: int | None) -> str:
    """The id of a data-parallel rank of `host`, or of the host where it has none."""
    return host if rank is None else f"{host}-{rank}"


@dataclass(frozen=True, slots=True)
class Host:
    """An address as data planes know it: once, however many data-parallel ranks answer there. All of them make its
    weight, whatever their health, so that the others keep their points."""

    id: str
    ranks: tuple[Replica, ...]

    @property
    def address(self) -> str:
        return self.ranks[0].address

    @property
    def tls(self) -> str:
        return self.ranks[0].tls

    @property
    def weight(self) -> int:
        return sum(r.weight for r in self.ranks)

    @property
    def in_hash(self) -> bool:
        return any(r.in_hash for r in self.ranks)


@dataclass(frozen=True, slots=True)
class Pool:
    """Replicas that serve the same model. `aliases` are other names clients may use for it.

    `template`: what the model's chat template does to messages; None while nobody knows, and then nothing is repaired.
    `template_digest`: of the template's text; empty where only the engine has it.
    `max_model_len`: the tokens that each of its engines takes, the answer's included; 0: not known.
    `mode`: what policy lets be done for it at most; None: what the file says.
    """

    id: str
    served_name: str
    aliases: tuple[str, ...] = ()
    hash: HashPolicy = "ring"
    replicas: tuple[Replica, ...] = ()
    template: Capabilities | None = None
    template_digest: str = ""
    max_model_len: int = 0
    mode: Mode | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every model name that leads here, the served one first."""
        return (self.served_name, *self.aliases, *self.adapters)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The LoRA adapters that its replicas list: model names that lead here, and that vLLM knows by themselves."""
        return tuple(dict.fromkeys(name for r in self.replicas for name in r.adapters))

    @property
    def hosts(self) -> tuple[Host, ...]:
        by_host: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            by_host.setdefault(replica.host, []).append(replica)
        return tuple(Host(host, tuple(ranks)) for host, ranks in by_host.items())

    def replica(self, replica_id: str) -> Replica | None:
        return next((r for r in self.replicas if r.id == replica_id), None)


@dataclass(frozen=True, slots=True)
class Fleet:
    pools: tuple[Pool, ...] = ()

    @property
    def version(self) -> str:
        """Content hash, 16 hex digits."""
        return blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    def pool(self, pool_id: str) -> Pool | None:
        return next((p for p in self.pools if p.id == pool_id), None)

    def apply(self, event: Event) -> Fleet:
        """The fleet after `event`; the same object when nothing changed. Unknown pools and ids change nothing."""
        changed = event.change(self)
        return self if changed == self else changed

    def with_replicas(self, pool_id: str, change: Callable[[tuple[Replica, ...]], Iterable[Replica]]) -> Fleet:
        return Fleet(
            tuple(replace(p, replicas=tuple(change(p.replicas))) if p.id == pool_id else p for p in self.pools)
        )


def encode(fleet: Fleet) -> bytes:
    """The feed's and the last-good file's form: one line of JSON."""
    return msgspec.json.encode(fleet)


def decode(data: bytes) -> Fleet:
    """The inverse of `encode`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Fleet)


class Event:
    """Something that happened to the membership. Each says what it changes."""

    __slots__ = ()

    def change(self, fleet: Fleet) -> Fleet:
        raise TypeError(f"{type(self).__name__} is not a membership event")


@dataclass(frozen=True, slots=True)
class MembershipReported(Event):
    """A source told the whole set of one pool's replicas. Known replicas keep their state and health;
    a new one starts in the state it was reported with; one that is no longer reported is gone."""

    pool_id: str
    replicas: tuple[Replica, ...]

    def change(self, fleet: Fleet) -> Fleet:
        def merged(known: tuple[Replica, ...]) -> Iterable[Replica]:
            before = {r.id: r for r in known}
            for new in self.replicas:
                old = before.get(new.id)
                yield new if old is None else _as_known(new, old)

        return fleet.with_replicas(self.pool_id, merged)


@dataclass(frozen=True, slots=True)
class HealthChanged(Event):
    """A replica's probes crossed a threshold. The first success makes a JOINING replica READY."""

    pool_id: str
    replica_id: str
    healthy: bool

    def change(self, fleet: Fleet) -> Fleet:
        def updated(r: Replica) -> Replica:
            if r.id != self.replica_id:
                return r
            state = State.READY if self.healthy and r.state is State.JOINING else r.state
            return replace(r, healthy=self.healthy, state=state)

        return fleet.with_replicas(self.pool_id, lambda known: map(updated, known))


@dataclass(frozen=True, slots=True)
class RequestsJudged(Event):
    """What became of a replica's requests says whether it serves."""

    pool_id: str
    replica_id: str
    failing: bool

    def change(self, fleet: Fleet) -> Fleet:
        return fleet.with_replicas(
            self.pool_id,
            lambda known: (replace(r, failing=self.failing) if r.id == self.replica_id else r for r in known),
        )


@dataclass(frozen=True, slots=True)
class ProcessSeen(Event):
    """A replica's process says when it began. If it is another one than before, the replica is cold."""

    pool_id: str
    replica_id: str
    epoch: int

    def change(self, fleet: Fleet) -> Fleet:
        return fleet.with_replicas(
            self.pool_id,
            lambda known: (replace(r, epoch=self.epoch) if r.id == self.replica_id else r for r in known),
        )


@dataclass(frozen=True, slots=True)
class AddressResolved(Event):
    """A replica's name now leads to another address. Its id, and so its sessions, stay."""

    pool_id: str
    replica_id: str
    address: str

    def change(self, fleet: Fleet) -> Fleet:
        return fleet.with_replicas(
            self.pool_id,
            lambda known: (replace(r, address=self.address) if r.id == self.replica_id else r for r in known),
        )


@dataclass(frozen=True, slots=True)
class DrainChanged(Event):
    """An operator drains a replica, or takes the drain back. Only a probe makes a JOINING replica READY."""

    pool_id: str
    replica_id: str
    draining: bool

    def change(self, fleet: Fleet) -> Fleet:
        def updated(r: Replica) -> Replica:
            if r.id != self.replica_id or (not self.draining and r.state is not State.DRAINING):
                return r
            return replace(r, state=State.DRAINING if self.draining else State.READY)

        return fleet.with_replicas(self.pool_id, lambda known: map(updated, known))


@dataclass(frozen=True, slots=True)
class TemplateProbed(Event):
    """A pool's chat template was probed; None: it is not known any more."""

    pool_id: str
    template: Capabilities | None
    digest: str = ""

    def change(self, fleet: Fleet) -> Fleet:
        def probed(pool: Pool) -> Pool:
            if pool.id != self.pool_id:
                return pool
            return replace(pool, template=self.template, template_digest=self.digest)

        return Fleet(tuple(map(probed, fleet.pools)))


@dataclass(frozen=True, slots=True)
class LengthTold(Event):
    """How many tokens a pool's engines take, the smallest of them."""

    pool_id: str
    max_model_len: int

    def change(self, fleet: Fleet) -> Fleet:
        def told(pool: Pool) -> Pool:
            return replace(pool, max_model_len=self.max_model_len) if pool.id == self.pool_id else pool

        return Fleet(tuple(map(told, fleet.pools)))


@dataclass(frozen=True, slots=True)
class PoolsReported(Event):
    """A new file: pools come, go or change their names. A pool that stays keeps its template and its length until they
    are found out again, and its replicas keep state and health."""

    pools: tuple[Pool, ...]

    def change(self, fleet: Fleet) -> Fleet:
        carried = Fleet(tuple(_with_what_is_known(pool, fleet.pool(pool.id)) for pool in self.pools))
        for pool in self.pools:
            carried = MembershipReported(pool.id, pool.replicas).change(carried)
        return carried


def _as_known(new: Replica, old: Replica) -> Replica:
    return replace(new, state=old.state, healthy=old.healthy, epoch=old.epoch, failing=old.failing)


def _with_what_is_known(pool: Pool, before: Pool | None) -> Pool:
    if before is None:
        return replace(pool, replicas=())
    return replace(
        pool,
        replicas=before.replicas,
        template=before.template,
        template_digest=before.template_digest,
        max_model_len=before.max_model_len,
    )
