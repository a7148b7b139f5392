"""What it costs that pickers tell each other their load: by replicas, and by gateways."""

from __future__ import annotations

from random import Random

from bench.scale.curve import Curve
from bench.scale.placing import POOL
from bench.scale.sizes import Sizes
from bench.scale.timing import seconds
from homing.core.chains import Chains
from homing.core.placement.load import Load
from homing.core.prefix.index import Index
from homing.core.session import Homes
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.message import decode, encode
from homing.ext_proc.pins.siblings import INTERVAL_S

PART = "exchange"
NOW = 1.8e9
BUSY = 0.25
BECAUSE = "a quarter of one core for what is not a request"


class Clock:
    """Goes on with every look by some tokens, so that what is said is always another load."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


def knowledge(name: str, replicas: int) -> Knowledge:
    """A picker that has something under way at each of so many replicas."""
    random, load, clock = Random(name), Load(), Clock()
    for i in range(replicas):
        load.begin((POOL, f"gpu-{i}"), random.uniform(100.0, 8_000.0), NOW)
    return Knowledge(name, Homes(1800, 1_000), Chains(1800, 1_000), load, Index(), clock)


def curves(sizes: Sizes) -> list[Curve]:
    most = sizes.replicas[-1]
    size, say, hear = [], [], []
    for replicas in sizes.replicas:
        message, said, heard = costs(replicas, sizes.repeats)
        size.append((replicas, message / 1e3))
        say.append((replicas, said * 1e3))
        hear.append((replicas, heard * 1e3))
    _, said, heard = costs(most, sizes.repeats)
    others = [(gateways, 2 * gateways - 1) for gateways in sizes.gateways]
    siblings = tuple((gateways, (said + heard) * n / INTERVAL_S) for gateways, n in others)
    stream = tuple((gateways, (said + heard * n) / INTERVAL_S) for gateways, n in others)
    return [
        Curve(PART, "one message", "KB", "replicas", tuple(size)),
        Curve(PART, "made and packed", "ms", "replicas", tuple(say)),
        Curve(PART, "unpacked and taken in", "ms", "replicas", tuple(hear)),
        _by_gateways(f"each tells each of two pickers a gateway, {most:,} replicas", siblings),
        _by_gateways(f"the same through Redis, {most:,} replicas", stream),
    ]


def costs(replicas: int, repeats: int) -> tuple[int, float, float]:
    """Bytes of a message; seconds to make it; seconds to take it in. Two messages take turns, so that all changes."""
    speaker, listener = knowledge("speaker", replicas), knowledge("listener", replicas)
    texts = [encode(speaker.message(None)) for _ in range(2)]
    turn = 0

    def take_in() -> None:
        nonlocal turn
        turn += 1
        listener.take_in(decode(texts[turn % 2]))

    made = seconds(lambda: encode(speaker.message(None)), repeats)
    return len(texts[0]), made, seconds(take_in, repeats)


def _by_gateways(what: str, points: tuple[tuple[int, float], ...]) -> Curve:
    return Curve(PART, what, "cores", "gateways", points, BUSY, BECAUSE)
