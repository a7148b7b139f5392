"""What is to be sent, and what it costs: known, and held to the caps, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from homing.core.verify.conversation import Conversation

CHARACTERS_PER_TOKEN = 4.0
"""Of English in most vocabularies; until an engine has said better."""


class Run(StrEnum):
    """The two runs, in the order in which they are made."""

    SCATTERED = "round robin"
    AFFINITY = "affinity"


@dataclass(frozen=True, slots=True)
class Caps:
    """Of both runs and the probes together. `tokens`: of prompts and answers."""

    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Estimate:
    requests: int
    prompt_tokens: int
    answer_tokens: int

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class Plan:
    """`answer_tokens`: of each answer, at most. `probes`: small requests beside the runs."""

    conversations: tuple[Conversation, ...]
    answer_tokens: int
    probes: int = 0

    def estimate(self, characters_per_token: float = CHARACTERS_PER_TOKEN) -> Estimate:
        turns = len(Run) * sum(len(conversation.turns) for conversation in self.conversations)
        characters = len(Run) * sum(conversation.characters for conversation in self.conversations)
        return Estimate(
            turns + self.probes,
            round(characters / characters_per_token) + self.probes * PROBE_TOKENS,
            turns * self.answer_tokens + self.probes,
        )

    def within(self, caps: Caps, characters_per_token: float = CHARACTERS_PER_TOKEN) -> Plan:
        """The conversations at the beginning that both runs can send without passing a cap; none, if not one can."""
        plan = self
        while plan.conversations:
            estimate = plan.estimate(characters_per_token)
            if estimate.requests <= caps.requests and estimate.tokens <= caps.tokens:
                return plan
            plan = replace(plan, conversations=plan.conversations[:-1])
        return plan


PROBE_TOKENS = 40
"""Of a probe's prompt, with what a template adds."""
