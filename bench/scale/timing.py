"""Processor time of a call, and memory of what it made."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

LEAST_S = 0.02


def seconds(call: Callable[[], object], repeats: int) -> float:
    """CPU of one call: the best of `repeats` tries, of as many calls each as take 20 ms. No collection of garbage falls
    into it."""
    times: list[float] = []
    calls = 1
    call()  # what is made at the first use is no part of it
    gc.collect()
    gc.disable()
    try:
        while len(times) < repeats:
            began = time.process_time()
            for _ in range(calls):
                call()
            took = time.process_time() - began
            if took < LEAST_S:
                calls *= 2
                continue
            times.append(took / calls)
    finally:
        gc.enable()
    return min(times)


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
