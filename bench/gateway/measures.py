"""What is measured of whom, and the ratios that matter. Times in ms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

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
    rate_per_s: float = 0.0

    def plan(self, contender: Contender, seconds: float) -> Plan:
        checks = not self.inspected
        return Plan(
            port=contender.port,
            seconds=seconds,
            connections=self.connections,
            body_bytes=self.body_bytes,
            sessions=0 if self.inspected else 256,
            expect_session=contender.names and checks,
            sticky=contender.homes and checks,
            rate_per_s=self.rate_per_s,
        )


LOADS = (
    Load("32 connections", (ALONE, *GATEWAYS), 32),
    Load("32 connections, body inspected", (BARE, HOMING, *NGINX), 32, inspected=True),
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
    """A figure made of medians. `reach` and `aim` are limits from below where `more` is better, else from above."""

    name: str
    value: Callable[[Medians], float]
    unit: str
    reach: float
    aim: float
    more: bool = False

    def verdict(self, value: float) -> str:
        def met(limit: float) -> bool:
            return value >= limit if self.more else value <= limit

        return "aim" if met(self.aim) else "reach" if met(self.reach) else "not reached"


class Medians:
    """Medians over the rounds, by load and contender."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def _median(self, load: str, contender: str, of: Callable[[Sample], float]) -> float:
        values = [of(s) for s in self._samples if (s.load, s.contender) == (load, contender)]
        return median(values) if values else float("nan")

    def rate(self, load: str, contender: str) -> float:
        return self._median(load, contender, lambda s: s.result.requests / s.result.seconds)

    def p50(self, load: str, contender: str) -> float:
        return self._median(load, contender, lambda s: s.result.p50_ms)

    def p99(self, load: str, contender: str) -> float:
        return self._median(load, contender, lambda s: s.result.p99_ms)

    def gateway_us(self, load: str, contender: str) -> float:
        return self._median(load, contender, lambda s: s.gateway_us)

    def picker_us(self, load: str, contender: str) -> float:
        return self._median(load, contender, lambda s: s.picker_us)

    def spread(self, load: str, contender: str) -> tuple[float, float]:
        """The least and the greatest rate."""
        rates = [
            s.result.requests / s.result.seconds for s in self._samples if (s.load, s.contender) == (load, contender)
        ]
        return (min(rates), max(rates)) if rates else (float("nan"), float("nan"))


def _over(load: str, other: str, other_load: str | None = None) -> Callable[[Medians], float]:
    return lambda m: m.rate(load, HOMING) / m.rate(other_load or load, other)


_CLOSED, _INSPECTED, _ONE, _OPEN, _LARGE = (load.name for load in LOADS)

RATIOS = (
    Ratio("header-first over the same listener without ext_proc", _over(_CLOSED, WITHOUT), "", 0.60, 0.75, more=True),
    Ratio("header-first over bare Envoy", _over(_CLOSED, BARE), "", 0.50, 0.65, more=True),
    Ratio("header-first over sglang-router", _over(_CLOSED, SGLANG), "", 0.75, 1.0, more=True),
    Ratio("header-first over vllm-router", _over(_CLOSED, VLLM), "", 0.45, 0.70, more=True),
    Ratio("body inspected over bare Envoy", _over(_INSPECTED, BARE), "", 0.40, 0.50, more=True),
    Ratio("p50 added to bare Envoy, 1 connection", lambda m: m.p50(_ONE, HOMING) - m.p50(_ONE, BARE), "ms", 0.22, 0.15),
    Ratio("p99 added to bare Envoy, 1 connection", lambda m: m.p99(_ONE, HOMING) - m.p99(_ONE, BARE), "ms", 0.6, 0.4),
    Ratio("p99 added at 1,000 a second", lambda m: m.p99(_OPEN, HOMING) - m.p99(_OPEN, BARE), "ms", 2.0, 1.0),
    Ratio("p50 added at 400 KB", lambda m: m.p50(_LARGE, HOMING) - m.p50(_LARGE, BARE), "ms", 0.35, 0.25),
    Ratio(
        "picker's CPU at 400 KB over 2 KB",
        lambda m: m.picker_us(_LARGE, HOMING) / m.picker_us(_ONE, HOMING),
        "",
        1.1,
        1.0,
    ),
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
