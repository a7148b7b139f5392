"""What a measurement costs, and the caps."""

from hypothesis import given
from hypothesis import strategies as st

from homing.core.verify.generated import generated
from homing.core.verify.plan import PROBE_TOKENS, Caps, Plan

CONVERSATIONS = generated(1, 5, 4)
EACH = CONVERSATIONS[0].characters
PLAN = Plan(CONVERSATIONS, answer_tokens=10, probes=17)


def test_an_estimate_counts_both_runs_and_the_probes():
    estimate = PLAN.estimate(characters_per_token=4)
    assert estimate.requests == 2 * 5 * 4 + 17
    assert estimate.prompt_tokens == 2 * 5 * EACH // 4 + 17 * PROBE_TOKENS
    assert estimate.answer_tokens == 2 * 5 * 4 * 10 + 17
    assert estimate.tokens == estimate.prompt_tokens + estimate.answer_tokens


def test_whole_conversations_are_left_out_until_the_caps_hold():
    assert len(PLAN.within(Caps(10_000, 10_000_000)).conversations) == 5
    assert len(PLAN.within(Caps(2 * 3 * 4 + 17, 10_000_000)).conversations) == 3
    assert len(PLAN.within(Caps(2 * 3 * 4 + 16, 10_000_000)).conversations) == 2
    assert PLAN.within(Caps(17, 10_000_000)).conversations == ()


@given(st.integers(1, 100), st.integers(1, 100_000))
def test_a_plan_within_caps_never_passes_them(requests, tokens):
    plan = PLAN.within(Caps(requests, tokens))
    assert plan.conversations == CONVERSATIONS[: len(plan.conversations)]
    if plan.conversations:
        assert plan.estimate().requests <= requests
        assert plan.estimate().tokens <= tokens
