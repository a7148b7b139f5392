"""Turns come home and find less than was there: it has been evicted."""

from __future__ import annotations

from homing.core.verify.conversation import Conversation
from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import MISSED, Evidence
from homing.core.verify.plan import Run

FULL = 0.8
"""A cache is too small where what is to be kept fills more than this share of it."""


def diagnose(evidence: Evidence) -> Finding | None:
    missed, best = evidence.missed(), evidence.reusable()
    caches = [c.cache_tokens for c in evidence.engines().values() if c is not None and c.cache_tokens]
    if missed is None or missed < MISSED or not caches or len(evidence.probes.homes) > 1:
        return None
    needed, room = _working_set(evidence), sum(caches)
    counted = evidence.counted().get(Run.AFFINITY, {})
    preempted = sum(c.preemptions for c in counted.values() if c is not None)
    if needed < room * FULL and not preempted:
        return None
    evictions = f" {preempted:.0f} requests were preempted for want of room." if preempted else ""
    return fault(
        "small_caches",
        f"Turns find {best - missed:.0%} of what they send where {best:.0%} was sent before. What is to be kept"
        f" between two turns, about {needed:,.0f} tokens, does not fit well into caches of {room:,.0f} tokens"
        f" together.{evictions}",
        "Give vLLM more room for KV blocks (--gpu-memory-utilization, --kv-cache-dtype fp8, a shorter"
        " --max-model-len), offload them (--kv-offloading-size), add replicas, or serve fewer conversations at once.",
    )


def _working_set(evidence: Evidence) -> float:
    """Tokens of the conversations that are under way at once, each at its longest; the largest count."""
    per_character = _tokens_per_character(evidence)
    longest = sorted((_longest(c) for c in evidence.conversations), reverse=True)
    return sum(longest[: evidence.concurrency]) * per_character


def _longest(conversation: Conversation) -> int:
    return max(sum(len(m.text) for m in prompt) for prompt in conversation.turns)


def _tokens_per_character(evidence: Evidence) -> float:
    told = [
        (o.answer.prompt_tokens, sum(len(m.text) for m in evidence.conversations[o.conversation].turns[o.turn - 1]))
        for o in evidence.observations
        if o.answer.prompt_tokens and o.conversation < len(evidence.conversations)
    ]
    characters = sum(c for _, c in told)
    return sum(t for t, _ in told) / characters if characters else 0.25
