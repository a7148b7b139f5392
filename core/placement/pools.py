"""The fleet, compiled for placement: models to pools, pools to hash tables. Built once per change, swapped whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from homing.core.fleet import Fleet, Host, Pool, Replica, State, ranked
from homing.core.hashing import Ketama, Maglev, Passing, Ranked, Ring, Table, minimum_ring_size
from homing.core.placement.load import Place


@dataclass(frozen=True, slots=True)
class CompiledPool:
    """A pool with the table that the data plane's fallback uses at this moment. Envoy's has the healthy members, and is
    sized by all; NGINX's has all, and passes over those that are down."""

    pool: Pool
    members: tuple[Replica, ...]
    newcomers: tuple[Replica, ...] = field(compare=False)  # those that take new sessions
    by_id: Mapping[str, int] = field(compare=False)  # index in `members`
    adapters: frozenset[str] = field(compare=False)
    unusual: frozenset[str | None] = field(compare=False)  # model names other than the one that is served
    table: Table = field(compare=False)
    limited: bool = field(default=False, compare=False)  # one of them takes a share of the new sessions only

    @classmethod
    def of(cls, pool: Pool) -> CompiledPool:
        members = tuple(r for r in pool.replicas if r.in_hash)
        newcomers = tuple(r for r in members if r.takes_new_sessions)
        by_id = {r.id: index for index, r in enumerate(members)}
        adapters = frozenset(pool.adapters)
        return cls(
            pool,
            members,
            newcomers,
            by_id,
            adapters,
            adapters.union(pool.aliases),
            _table(pool, by_id),
            any(r.share < 1 for r in newcomers),
        )

    def owner(self, key: bytes) -> Replica | None:
        """The replica that the data plane alone would choose."""
        index = self.table.owner(key)
        return None if index is None else self.members[index]

    def adapter(self, model: str | None) -> str | None:
        """`model`, if it is a LoRA adapter of the pool."""
        return model if model in self.adapters else None

    def walk(self, key: bytes) -> Iterator[Replica]:
        return (self.members[index] for index in self.table.walk(key))

    def heir(self, key: bytes, target: Replica) -> Replica | None:
        """The next on the hash after `target`, of those that take new sessions. A retry asks for the same data-parallel
        rank, which not every host may have."""
        for index in self.table.walk(key):
            candidate = self.members[index]
            if candidate.address != target.address and candidate.rank == target.rank and candidate.takes_new_sessions:
                return candidate
        return None

    def member(self, replica_id: str) -> Replica | None:
        """The replica if it is in the table, so fit to serve."""
        index = self.by_id.get(replica_id)
        return None if index is None else self.members[index]

    def served(self, host: str, told: str) -> str:
        """Who served where `told` was meant to: data planes know hosts, and the rank is the one that the request asked
        for. `host` itself where that is not known."""
        meant = self.member(told)
        replica_id = ranked(host, meant.rank) if meant is not None else host
        return replica_id if replica_id in self.by_id else host


def _table(pool: Pool, members: Mapping[str, int]) -> Table:
    """What the data plane hashes with, and behind it the ranks of each host. Envoy's tables hold the hosts that serve,
    by id; NGINX's all servers, by address."""
    all_hosts = pool.hosts
    hosts = [host for host in all_hosts if host.in_hash]
    table = _ketama(all_hosts) if pool.hash == "ketama" else _envoys(pool, hosts)
    if len(hosts) == len(members):
        return table
    return Ranked(table, [tuple(members[r.id] for r in host.ranks if r.id in members) for host in hosts])


def _envoys(pool: Pool, hosts: Sequence[Host]) -> Table:
    named = [(host.id, host.weight) for host in hosts]
    if pool.hash == "maglev":
        return Maglev(named)
    return Ring(named, minimum_ring_size([r.weight for r in pool.replicas]))


def _ketama(hosts: Sequence[Host]) -> Table:
    """NGINX passes over a server that is down; one that has never answered it does not know yet."""
    servers = [host for host in hosts if any(r.state is not State.JOINING for r in host.ranks)] or hosts
    ups = [index for index, server in enumerate(servers) if server.in_hash]
    return Passing(Ketama([(server.address, server.weight) for server in servers]), ups)


@dataclass(frozen=True, slots=True)
class CompiledFleet:
    by_model: Mapping[str, CompiledPool]
    by_id: Mapping[str, CompiledPool]

    @classmethod
    def of(cls, fleet: Fleet, before: CompiledFleet | None = None) -> CompiledFleet:
        """Pools that did not change keep their tables."""
        known = before.by_id if before else {}
        by_id = {
            p.id: known[p.id] if p.id in known and known[p.id].pool == p else CompiledPool.of(p) for p in fleet.pools
        }
        by_model = {name: by_id[p.id] for p in fleet.pools for name in p.names}
        return cls(by_model, by_id)

    def places(self) -> set[Place]:
        """Hosts of several ranks too: what Envoy alone sent there is known of the host only."""
        return {
            (pool_id, name) for pool_id, p in self.by_id.items() for r in p.pool.replicas for name in (r.id, r.host)
        }

    def fit(self) -> set[Place]:
        """Those in the hash tables."""
        return {(pool_id, r.id) for pool_id, compiled in self.by_id.items() for r in compiled.members}

    def open(self) -> set[Place]:
        """Those that take new sessions."""
        return {(pool_id, r.id) for pool_id, compiled in self.by_id.items() for r in compiled.newcomers}

    def epochs(self) -> dict[Place, int]:
        """Of the replicas that say when their process began."""
        return {(pool_id, r.id): r.epoch for pool_id, p in self.by_id.items() for r in p.pool.replicas if r.epoch}

    def pool_for(self, model: str | None) -> CompiledPool | None:
        """The pool of a model name. A request that names none belongs to the only pool, if there is only one."""
        if model is None:
            return next(iter(self.by_id.values())) if len(self.by_id) == 1 else None
        return self.by_model.get(model)


EMPTY = CompiledFleet({}, {})
