"""How much memory the index of prefixes takes: `python -m bench.micro.memory`."""

from __future__ import annotations

import resource
import sys

from homing.core.prefix.events import Stored
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt

PROMPT_BLOCKS = 100
HASHES = 2**62  # as large as an engine's


def filled(blocks: int, replicas: int) -> Index:
    """`blocks` of 16 tokens at each of so many replicas in equal parts, in prompts of 100 blocks that nobody shares."""
    index = Index()
    held = index.pool("p").blocks
    for number in range(blocks // PROMPT_BLOCKS):
        first = HASHES + number * PROMPT_BLOCKS
        tokens = [number, *range(PROMPT_BLOCKS * 16 - 1)]
        held.apply(f"gpu-{number % replicas}", Stored(range(first, first + PROMPT_BLOCKS), None, tokens, 16))
    return index


def sent(marks: int, replicas: int) -> Index:
    index = Index()
    for number in range(marks // 10):
        first = HASHES + number * 10
        prompt = Prompt(tuple(range(first, first + 10)), tuple(range(1, 11)))
        index.placed("p", f"gpu-{number % replicas}", prompt, float(number))
    return index


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    before = resident_bytes()
    blocks = filled(1_000_000, 40)
    noted = blocks.pool("p").blocks.noted
    between = resident_bytes()
    marks = sent(1_000_000, 40)
    kept = len(marks.pool("p").placed)
    after = resident_bytes()
    for what, number, size in (("blocks", noted, between - before), ("marks", kept, after - between)):
        sys.stdout.write(f"{number:,} {what}: {size / 1e6:.0f} MB, {size / number:.0f} bytes each\n")


if __name__ == "__main__":
    main()
