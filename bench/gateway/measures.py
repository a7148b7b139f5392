"""What is measured of whom, and the ratios that matter. Times in ms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor, nan

import msgspec

from bench.gateway import nginx
from bench.gateway.contenders import Contender
from bench.gateway.load import Plan, Result

BARE, WITHOUT, HOMING = "bare Envoy", "without ext_proc", "homing"
NGINX = (nginx.BARE, nginx.ALONE, nginx.HOMING)
ALONE, SGLANG, VLLM = "the replica alone", "sglang-router", "vllm-router"
GATEWAYS = (BARE, WITHOUT, HOMING, *NGINX, SGLANG, VLLM)


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load, and who gets it."""

    name: str
    contenders: tuple[str, ...]
    connections: int
    body_bytes: int = 2_048
    inspected: bool = False  # no session's id, so that the picker reads the body, and leaves it as it is
    conversations: int = 0  # then: so many, which go on; 0: each request begins one
    rate_per_s: float = 0.0

    def plan(self, contender: Contender, seconds: float) -> Plan:
        checks = not self.inspected
        return Plan(
            port=contender.port,
            seconds=seconds,
            connections=self.connections,
            body_bytes=self.body_bytes,
            sessions=0 if self.inspected else 256,
            conversations=self.conversations,
            expect_session=contender.names and checks,
            sticky=contender.homes and checks,
            rate_per_s=self.rate_per_s,
        )


LOADS = (
    Load("32 connections", (ALONE, *GATEWAYS), 32),
    Load("32 connections, body inspected", (BARE, HOMING, *NGINX), 32, inspected=True, conversations=256),
    Load("32 connections, all new, body inspected", (BARE, HOMING), 32, inspected=True),
    Load("1 connection", GATEWAYS, 1),
    Load("1,000 a second, open loop", (BARE, HOMING), 32, rate_per_s=1_000),
    Load("400 KB, 1 connection", (BARE, HOMING), 1, body_bytes=400_000),
)


class Sample(msgspec.Struct, frozen=True):
    """One run. CPU in microseconds per request, of the gateway and of its picker."""

    load: str
    contender: str
    round: int
    result: Result
    gateway_us: float
    picker_us: float
    fail_opens: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure made of the rounds. `reach` and `aim` are limits from below where `more` is better, else from above."""

    name: str
    value: Callable[[Figures], float]
    unit: str
    reach: float
    aim: float
    more: bool = False
    by_cpu: Callable[[Figures], float] | None = None
    """The same by the gateway's CPU for a request: what it would be with the gateway alone at its limit."""

    def verdict(self, value: float) -> str:
        def met(limit: float) -> bool:
            return value >= limit if self.more else value <= limit

        return "aim" if met(self.aim) else "reach" if met(self.reach) else "not reached"


class Figures:
    """Of each load and contender, that round of all which has `share` of them at or before it, from the best on: 0.5 is
    the median, and 0.25 says more of the contender and less of what else the machine did."""

    def __init__(self, samples: list[Sample], share: float = 0.5) -> None:
        self._samples = samples
        self._share = share

    def rate(self, load: str, contender: str) -> float:
        return -self._best(load, contender, lambda s: -s.result.requests / s.result.seconds)

    def p50(self, load: str, contender: str) -> float:
        return self._best(load, contender, lambda s: s.result.p50_ms)

    def p99(self, load: str, contender: str) -> float:
        return self._best(load, contender, lambda s: s.result.p99_ms)

    def gateway_us(self, load: str, contender: str) -> float:
        return self._best(load, contender, lambda s: s.gateway_us)

    def picker_us(self, load: str, contender: str) -> float:
        return self._best(load, contender, lambda s: s.picker_us)

    def _best(self, load: str, contender: str, of: Callable[[Sample], float]) -> float:
        """`of`: the less the better."""
        values = sorted(of(s) for s in self._samples if (s.load, s.contender) == (load, contender))
        if not values:
            return nan
        at = self._share * (len(values) - 1)
        low, high = values[floor(at)], values[ceil(at)]
        return low + (high - low) * (at - floor(at))


def _over(load: str, other: str, who: str = HOMING) -> Callable[[Figures], float]:
    return lambda m: m.rate(load, who) / m.rate(load, other)


_CLOSED, _INSPECTED, _NEW, _ONE, _OPEN, _LARGE = (load.name for load in LOADS)


def _by_cpu(load: str, other: str, who: str) -> Callable[[Figures], float]:
    return lambda m: m.gateway_us(load, other) / m.gateway_us(load, who)


def _closed(name: str, other: str, reach: float, aim: float, who: str = HOMING) -> Ratio:
    return Ratio(name, _over(_CLOSED, other, who), "", reach, aim, more=True, by_cpu=_by_cpu(_CLOSED, other, who))


def _yardsticks(who: str, prefix: str = "") -> tuple[Ratio, ...]:
    """What a data plane with a picker is held against, whichever it is."""

    def p50(m: Figures) -> float:
        return m.p50(_ONE, who) - m.p50(_ONE, BARE)

    def p99(m: Figures) -> float:
        return m.p99(_ONE, who) - m.p99(_ONE, BARE)

    return (
        _closed(f"{prefix}header-first over bare Envoy", BARE, 0.50, 0.65, who),
        _closed(f"{prefix}header-first over sglang-router", SGLANG, 0.75, 1.0, who),
        _closed(f"{prefix}header-first over vllm-router", VLLM, 0.45, 0.70, who),
        Ratio(f"{prefix}body inspected over bare Envoy", _over(_INSPECTED, BARE, who), "", 0.40, 0.50, more=True),
        Ratio(f"{prefix}p50 added to bare Envoy, 1 connection", p50, "ms", 0.22, 0.15),
        Ratio(f"{prefix}p99 added to bare Envoy, 1 connection", p99, "ms", 0.6, 0.4),
    )


RATIOS = (
    _closed("header-first over the same listener without ext_proc", WITHOUT, 0.60, 0.75),
    *_yardsticks(HOMING),
    Ratio("body inspected, all new conversations, over bare Envoy", _over(_NEW, BARE), "", 0.40, 0.50, more=True),
    Ratio("p99 added at 1,000 a second", lambda m: m.p99(_OPEN, HOMING) - m.p99(_OPEN, BARE), "ms", 2.0, 1.0),
    Ratio("p50 added at 400 KB", lambda m: m.p50(_LARGE, HOMING) - m.p50(_LARGE, BARE), "ms", 0.35, 0.25),
    Ratio(
        "picker's CPU at 400 KB over 2 KB",
        lambda m: m.picker_us(_LARGE, HOMING) / m.picker_us(_ONE, HOMING),
        "",
        1.1,
        1.0,
    ),
    *_yardsticks(nginx.HOMING, "NGINX: "),
)


def wrong(samples: list[Sample]) -> Mapping[str, int]:
    """Answers that were not right, and requests that Envoy let go on without its picker."""
    found: dict[str, int] = {}
    for sample in samples:
        for why, count in sample.result.wrong.items():
            found[f"{sample.contender}, {sample.load}: {why}"] = count
        if sample.fail_opens:
            found[f"{sample.contender}, {sample.load}: without the picker"] = sample.fail_opens
    return found
