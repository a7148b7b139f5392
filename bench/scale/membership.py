"""What a change of membership costs, by the number of replicas: at control, on the wire, and at each picker."""

from __future__ import annotations

from collections.abc import Callable

from bench.scale.curve import Curve
from bench.scale.placing import POOL
from bench.scale.sizes import Sizes
from bench.scale.timing import seconds
from homing.control import resources
from homing.control.envoy_config import Wiring
from homing.core.config import Config, parse
from homing.core.fleet import Fleet, HashPolicy, HealthChanged, decode, encode
from homing.core.placement.pools import CompiledFleet

PART = "membership"
STALL_MS = 150.0
STALL = "so long a change may keep a picker's requests, or the next change, waiting"
WIRING = Wiring(("unix:/run/picker.sock",))


def config(replicas: int, hash_policy: HashPolicy = "ring") -> Config:
    listed = ", ".join(f"{{id: gpu-{i}, address: '10.0.{i // 250}.{i % 250 + 1}:8000'}}" for i in range(replicas))
    return parse(f"pools: {{{POOL}: {{hash: {hash_policy}, replicas: [{listed}]}}}}", "bench")


def curves(sizes: Sizes) -> list[Curve]:
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for replicas in sizes.replicas:
        for (what, unit), taken in _figures(replicas, sizes.repeats).items():
            points.setdefault((what, unit), []).append((replicas, taken))
    return [
        Curve(PART, what, unit, "replicas", tuple(taken), STALL_MS if unit == "ms" else None, STALL)
        for (what, unit), taken in points.items()
    ]


def _figures(replicas: int, repeats: int) -> dict[tuple[str, str], float]:
    """What each step takes, by its name and unit."""
    written = config(replicas)
    fleet = healthy(written)
    maglev = healthy(config(replicas, "maglev"))
    failed = HealthChanged(POOL, "gpu-0", healthy=False)
    body = encode(fleet)
    steps: dict[str, Callable[[], object]] = {
        "the change itself": lambda: fleet.apply(failed),
        "Envoy's configuration made": lambda: resources.snapshot(written, fleet, WIRING),
        "the fleet packed for pickers": lambda: encode(fleet),
        "the fleet unpacked by a picker": lambda: decode(body),
        "a picker's new table (ring)": lambda: CompiledFleet.of(fleet),
        "a picker's new table (maglev)": lambda: CompiledFleet.of(maglev),
    }
    taken = {(what, "ms"): seconds(step, repeats) * 1e3 for what, step in steps.items()}
    return taken | {("the fleet on the wire, to each picker", "KB"): len(body) / 1e3}


def healthy(written: Config) -> Fleet:
    """As it is when all replicas have answered their probes."""
    fleet = written.fleet()
    for pool in fleet.pools:
        for replica in pool.replicas:
            fleet = fleet.apply(HealthChanged(pool.id, replica.id, healthy=True))
    return fleet
