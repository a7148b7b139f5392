"""What the API answers with. Field names are part of the contract (docs/api.md)."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from homing.control.ads import TypeState
from homing.control.ads_server import AdsServer, Stream
from homing.control.delta import DeltaStream
from homing.control.membership import View
from homing.control.reload import Refused
from homing.control.snapshot import ORDER, Resources
from homing.control.tls import Held
from homing.core.fleet import HashPolicy, Pool, Replica, State

Trouble = Callable[[str, Replica], str]
"""What is wrong with a replica of a pool (its id), in words; empty for nothing that is known."""


class ReplicaView(BaseModel):
    """One replica. `in_hash`: Envoy's hash leads to it; `takes_new_sessions`: so does placement; `epoch`: when its
    process began, in ms since 1970, 0 where it does not say; `failing`: it fails requests; `share`: of the new sessions
    at most, by policy; `rank`: where several data-parallel ranks share the address, which it is; `tls`: the name that
    its certificate has to bear, empty where it speaks plain HTTP; `trouble`: what is wrong with that certificate, what
    its last probe had against it, or why it cannot serve though it answers them."""

    id: str
    address: str
    weight: int
    state: State
    healthy: bool
    in_hash: bool
    takes_new_sessions: bool
    epoch: int
    failing: bool
    share: float
    rank: int | None
    tls: str
    trouble: str

    @classmethod
    def of(cls, replica: Replica, trouble: str) -> ReplicaView:
        return cls(
            id=replica.id,
            address=replica.address,
            weight=replica.weight,
            state=replica.state,
            healthy=replica.healthy,
            in_hash=replica.in_hash,
            takes_new_sessions=replica.takes_new_sessions,
            rank=replica.rank,
            epoch=replica.epoch,
            failing=replica.failing,
            share=replica.share,
            tls=replica.tls,
            trouble=trouble,
        )


class PoolView(BaseModel):
    """Replicas that serve the same model. `max_model_len`: what its engines take, 0 where nobody asks them."""

    id: str
    served_name: str
    aliases: tuple[str, ...]
    hash: HashPolicy
    max_model_len: int
    replicas: tuple[ReplicaView, ...]

    @classmethod
    def of(cls, pool: Pool, trouble: Trouble) -> PoolView:
        return cls(
            id=pool.id,
            served_name=pool.served_name,
            aliases=pool.aliases,
            hash=pool.hash,
            max_model_len=pool.max_model_len,
            replicas=tuple(ReplicaView.of(replica, trouble(pool.id, replica)) for replica in pool.replicas),
        )


class FileView(BaseModel):
    """The configuration file. `refused`: why the newest is not used, so that the one before is; empty where it is.
    `refused_at_s`: when it was read, in seconds since 1970."""

    refused: str
    refused_at_s: float | None

    @classmethod
    def of(cls, refused: Refused | None) -> FileView:
        if refused is None:
            return cls(refused="", refused_at_s=None)
        return cls(refused=refused.why, refused_at_s=refused.at_s)


class FleetView(BaseModel):
    """What the control service knows. `told`: the version that the pickers are served; differs during a rollout,
    and while a replica has no address."""

    version: str
    told: str
    file: FileView
    pools: tuple[PoolView, ...]

    @classmethod
    def of(cls, view: View, told: str, trouble: Trouble, refused: Refused | None) -> FleetView:
        pools = tuple(PoolView.of(pool, trouble) for pool in view.fleet.pools)
        return cls(version=view.fleet.version, told=told, file=FileView.of(refused), pools=pools)


class ResourcesView(BaseModel):
    """One type of the newest snapshot."""

    version: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, resources: Resources) -> ResourcesView:
        return cls(version=resources.version, names=tuple(sorted(resources.by_name)))


class TypeView(BaseModel):
    """One type on one stream. `told`: the version sent last; `accepted`: the one the client works with."""

    answer: str
    told: str
    accepted: str
    error: str
    wildcard: bool
    names: tuple[str, ...]

    @classmethod
    def of(cls, state: TypeState) -> TypeView:
        return cls(
            answer=state.answer,
            told=state.told,
            accepted=state.accepted,
            error=state.error,
            wildcard=state.subscription.wildcard,
            names=tuple(sorted(state.subscription.names)),
        )


class StreamView(BaseModel):
    """One connected Envoy. `answer` to the newest snapshot: acked, pending or nacked. `late`: not waited for."""

    node: str
    cluster: str
    envoy_version: str
    peer: str
    delta: bool
    pools: tuple[str, ...]
    answer: str
    late: bool
    types: dict[str, TypeView]

    @classmethod
    def of(cls, stream: Stream, serial: int) -> StreamView:
        return cls(
            node=stream.node.id,
            cluster=stream.node.cluster,
            envoy_version=stream.node.version,
            peer=stream.peer,
            pools=tuple(sorted(stream.node.pools)),
            delta=isinstance(stream.machine, DeltaStream),
            answer=stream.answer(serial),
            late=stream.late,
            types={short(url): TypeView.of(stream.types[url]) for url in ORDER if url in stream.types},
        )


class XdsView(BaseModel):
    """The newest snapshot and every stream. `snapshot` is empty before the first."""

    snapshot: str
    resources: dict[str, ResourcesView]
    streams: tuple[StreamView, ...]

    @classmethod
    def of(cls, ads: AdsServer) -> XdsView:
        snapshot = ads.snapshot
        return cls(
            snapshot=snapshot.version if snapshot else "",
            resources={short(url): ResourcesView.of(snapshot.types[url]) for url in ORDER} if snapshot else {},
            streams=tuple(StreamView.of(stream, ads.serial) for stream in ads.streams),
        )


class CertificateView(BaseModel):
    """One certificate of this process. `trouble`: why what is on the disk now is not used; `expires_s`: when the one in
    use runs out, in seconds since 1970."""

    use: str
    trouble: str
    expires_s: float | None

    @classmethod
    def of(cls, held: Held) -> CertificateView:
        held.newest()
        return cls(use=held.name, trouble=held.trouble, expires_s=held.expires_s)


class Health(BaseModel):
    status: str


class Readiness(BaseModel):
    """`waiting`: what is still to come, in words."""

    ready: bool
    waiting: tuple[str, ...]


def short(type_url: str) -> str:
    """The last part of a type URL: `Cluster`, `ClusterLoadAssignment`, `Listener`, `RouteConfiguration`."""
    return type_url.rpartition(".")[2]
