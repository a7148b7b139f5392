"""Prompts that hardly fill a block: there is nothing to find."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt
from homing.core.verify.evidence import Evidence
from homing.core.verify.spread import median

BLOCKS = 4


def diagnose(evidence: Evidence) -> Finding | None:
    blocks = [c.block_size for c in evidence.engines().values() if c is not None and c.block_size]
    prompts = [o.answer.prompt_tokens for o in evidence.observations if o.answer.prompt_tokens and o.turn > 1]
    if not blocks or not prompts:
        return None
    block, middle = max(blocks), median(prompts)
    if middle >= BLOCKS * block:
        return None
    return doubt(
        "short_prompts",
        f"Later turns have {middle:.0f} tokens at the median, and the engines keep blocks of {block}: only whole"
        " blocks are found again.",
        "Measure with longer conversations (--turns, or your own by --data); short ones gain little from any cache.",
    )
