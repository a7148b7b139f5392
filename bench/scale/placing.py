"""What one placement costs, by the number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from bench.scale.curve import Curve
from bench.scale.sizes import Sizes
from bench.scale.timing import seconds
from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica
from homing.core.placement.decision import Arrival
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.placement.settings import Settings
from homing.core.session import Homes, SessionKey

POOL = "p"
NOW = 1.8e9
KNOWN = 10_000
BODY_BYTES = 8_000
BOUND_US = 1_000.0
BECAUSE = "so long one placement may keep all other requests waiting"


def pool(replicas: int) -> CompiledPool:
    members = tuple(Replica(f"gpu-{i}", f"10.0.{i // 250}.{i % 250 + 1}:8000") for i in range(replicas))
    return CompiledPool.of(Pool(POOL, "model", replicas=members))


def placer(homes: Homes | None = None) -> Placer:
    random = Random(1)
    made = Placer(homes or Homes(1800, 200_000), Chains(1800, 200_000), Load(), b"secret", random.randrange)
    made.scales.configure({POOL: Settings()})
    return made


def keys() -> Iterator[SessionKey]:
    for number in count():
        session = b"session-%d" % number
        yield SessionKey(b"", session, b"/" + session)


def curves(sizes: Sizes) -> list[Curve]:
    kinds: dict[str, Callable[[int], Callable[[], object]]] = {
        "a turn of a session that is at home": _home,
        "an id of the client's, seen for the first time": _first,
        "a new session, with an id that fits the hash": _new,
    }
    return [
        Curve(
            "placement",
            what,
            "us",
            "replicas",
            tuple((n, seconds(kind(n), sizes.repeats) * 1e6) for n in sizes.replicas),
            BOUND_US,
            BECAUSE,
        )
        for what, kind in kinds.items()
    ]


def _home(replicas: int) -> Callable[[], object]:
    compiled, ours = pool(replicas), placer()
    source = keys()
    arrivals = [Arrival(next(source), True, BODY_BYTES) for _ in range(KNOWN)]
    for arrival in arrivals:
        assert ours.place(compiled, arrival, NOW) is not None
    numbers = count()

    def again() -> None:
        assert ours.place(compiled, arrivals[next(numbers) % KNOWN], NOW + 1) is not None

    return again


def _first(replicas: int) -> Callable[[], object]:
    return _each(replicas, given=True)


def _new(replicas: int) -> Callable[[], object]:
    return _each(replicas, given=False)


def _each(replicas: int, *, given: bool) -> Callable[[], object]:
    compiled, ours, source = pool(replicas), placer(), keys()

    def place() -> None:
        assert ours.place(compiled, Arrival(next(source), given, BODY_BYTES), NOW) is not None

    for _ in range(KNOWN):  # so that the load is not the same everywhere
        place()
    return place
