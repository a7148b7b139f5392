"""A picker as tests drive it: real placement, a fake clock, no sockets."""

from __future__ import annotations

import json

import msgspec

from homing.core.chains import Chains
from homing.core.fleet import Fleet, HealthChanged, Pool, Replica
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.session import Homes
from homing.ext_proc.events import BodyAnswer, HeadersAnswer, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.identity import NO_SEALS, Identity
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.picker import Picker, RoutedRequest, Settled

REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(3))
POOL = Pool("p", "served", ("alias",), replicas=REPLICAS)
OTHER = Pool("q", "other", replicas=REPLICAS)
FLEET = Fleet((POOL, OTHER))
TABLE = CompiledPool.of(POOL)


CHAT = b"/v1/chat/completions"
FILE = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"


class Picking:
    """A picker, what it observed, and requests as Envoy makes them."""

    def __init__(self, fleet: Fleet = FLEET, tenant_header: str | None = None) -> None:
        self.now = 0.0
        self.ttfts: list[tuple[tuple[str, str], float]] = []
        self.forgotten: list[tuple[str, str]] = []
        placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: 0)
        self.wall = 1_000_000.0
        identity = Identity(lambda: self.wall, lambda: b"fresh")
        identity.configure(tenant_header, None, NO_SEALS)
        self.picker = Picker(placer, lambda: self.now, self, identity)
        self.picker.adopt(fleet)

    def observe(self, place: tuple[str, str], seconds: float) -> None:
        self.ttfts.append((place, seconds))

    def forget(self, place: tuple[str, str]) -> None:
        self.forgotten.append(place)

    def route(
        self, session: bytes = b"s", model: str | None = "served", *, given: bool = True, **more: bytes
    ) -> RoutedRequest | Settled:
        """`more`: further headers, with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        tenant = headers.get(self.picker.identity.tenant_header or "", b"")
        headers |= {"x-session-id": session, "x-homing-key": tenant + b"/" + session}
        headers |= {"x-homing-given": session} if given else {}
        return self.picker.route(RequestHeadersReceived(headers, model))

    def in_flight(self) -> dict[tuple[str, str], int]:
        return self.picker.placer.load.snapshot()


def outcome(**fields: object) -> Outcome:
    served = Outcome("p", "gpu-0", 200, 0.5, 1.0, 1, "home", "00" * 16)
    return msgspec.structs.replace(served, **fields)


def home(session: bytes = b"s") -> Replica:
    owner = TABLE.owner(b"/" + session)
    assert owner is not None
    return owner


def dead(picking: Picking, replica_id: str) -> Fleet:
    pools = tuple(compiled.pool for compiled in picking.picker.fleet.by_id.values())
    return Fleet(pools).apply(HealthChanged("p", replica_id, False))


def other_than(replica: Replica) -> str:
    return next(r.id for r in REPLICAS if r.id != replica.id)


def destination(picking: Picking) -> str:
    return dict(picking.route().set_headers)["x-gateway-destination-endpoint"].decode().split(",")[0]


def closing(picking: Picking, model: str | None, session: bytes = b"s") -> RoutedRequest | Settled:
    return picking.route(session, model, x_session_close=b"True")


def known(picking: Picking) -> int:
    return len(picking.picker.placer.homes)


def unnamed(
    picking: Picking, body: bytes, model: str = "served", path: bytes = CHAT, **more: bytes
) -> dict[str, bytes]:
    """The headers that Envoy is told once the body of a request without a session is there."""
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": path, **more}
    exchange = Exchange(picking.picker)
    answer = exchange.receive(RequestHeadersReceived(headers, model))
    assert answer == HeadersAnswer((), want_body=True)
    told = exchange.receive(RequestBodyReceived(body))
    assert isinstance(told, BodyAnswer)
    exchange.close()
    return dict(told.set_headers)


def talk(*texts: str) -> bytes:
    roles = ("user", "assistant")
    return json.dumps({"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]}).encode()
