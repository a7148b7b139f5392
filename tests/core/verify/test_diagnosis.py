"""Each classic failure is recognised from what was seen, and from nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verified import HOME, always_as_long, engine, evidence, failed, observations, states

from homing.core.verify.conversation import Conversation, Message
from homing.core.verify.diagnosis import Weight, diagnose
from homing.core.verify.diagnosis.changing_front import Difference, difference
from homing.core.verify.observed import Answer, Failure, Observation, Probes
from homing.core.verify.plan import Run

FAULT, DOUBT = Weight.FAULT, Weight.DOUBT

SCATTERED = Probes(same=("a", "b") * 4, fresh=("a", "b") * 4)
MISSING = {"told": observations(always_as_long), "counted": states(0.3, 0.3)}


def with_front(text):
    """Conversations whose system message has `text` of the turn in it."""
    return tuple(
        Conversation(
            tuple(
                (Message("system", f"Be brief. {text(turn)} {'Rules. ' * 40}"), Message("user", "x" * 100 * turn))
                for turn in range(1, 5)
            )
        )
        for _ in range(3)
    )


def silent():
    """One engine of two has no counters."""
    found = {Run.SCATTERED: 3_000, Run.AFFINITY: 6_000}
    return {run: ({"a": None, "b": engine()}, {"a": None, "b": engine(32, 10_000, found[run])}) for run in Run}


CASES = {
    "all is well": (evidence(), []),
    "nobody listens": (failed(Failure.UNREACHABLE, detail="connection refused"), [("unreachable", FAULT)]),
    "nothing in time": (failed(Failure.LATE, detail="late"), [("unreachable", FAULT)]),
    "one of many was lost": (
        evidence(first=(Answer(200, ttft_s=1.0), Answer(failure=Failure.BROKEN, detail="reset"))),
        [("unreachable", DOUBT)],
    ),
    "no key": (failed(Failure.STATUS, 401, "Unauthorized"), [("unauthorized", FAULT)]),
    "a wrong key": (failed(Failure.STATUS, 403, key_given=True), [("unauthorized", FAULT)]),
    "no choices": (failed(Failure.NO_CHOICES, 200, "text/html, no JSON"), [("no_choices", FAULT)]),
    "no such model": (failed(Failure.STATUS, 404, "no such model"), [("failing", FAULT)]),
    "some are refused": (
        evidence(first=(Answer(200, ttft_s=1.0), Answer(429, Failure.STATUS))),
        [("failing", DOUBT)],
    ),
    "the id is replaced": (
        evidence(observations(always_as_long, session="other"), states(0.3, 0.3), probes=SCATTERED),
        [("id_lost", FAULT)],
    ),
    "the id is dropped both ways": (
        evidence(observations(always_as_long, session=None), states(0.3, 0.3), probes=SCATTERED),
        [("id_lost", FAULT)],
    ),
    "the id is dropped and the history recognised": (
        evidence(observations(always_as_long, session="other"), states(0.55, 0.55)),
        [("id_lost", FAULT)],
    ),
    "another key than the id": (evidence(**MISSING, probes=SCATTERED), [("wrong_key", FAULT)]),
    "another key, and a gateway that issues no ids": (
        evidence(
            observations(always_as_long, session=None),
            states(0.3, 0.3),
            issues=False,
            probes=Probes(SCATTERED.same, SCATTERED.fresh, {"x-a": ("a", "b"), "x-b": ("a", "a")}),
        ),
        [("wrong_key", FAULT)],
    ),
    "one key for all sessions": (
        evidence(**MISSING, probes=Probes(same=("a",) * 8, fresh=("a",) * 8)),
        [("wrong_key", FAULT)],
    ),
    "one replica": (
        evidence(
            observations(always_as_long),
            {run: ({"a": engine()}, {"a": engine(32, 10_000, 6_000)}) for run in Run},
            probes=Probes(("a",) * 8, ("a",) * 8),
        ),
        [("one_replica", FAULT)],
    ),
    "one address of several ranks": (
        evidence(
            observations(always_as_long),
            {run: ({"a": engine(ranks=4)}, {"a": engine(32, 10_000, 6_000, ranks=4)}) for run in Run},
            probes=Probes(("a",) * 8, ("a",) * 8),
        ),
        [],
    ),
    "caching is off": (
        evidence(observations(always_as_long), states(0.0, 0.0, caching=False)),
        [("caching_off", FAULT)],
    ),
    "nothing is looked up": (
        evidence(
            observations(always_as_long),
            {run: ({"a": engine(), "b": engine()}, {"a": engine(16), "b": engine(16)}) for run in Run},
        ),
        [("caching_off", FAULT)],
    ),
    "a time at the front": (
        evidence(**MISSING, conversations=with_front(lambda turn: f"It is 12:0{turn}.")),
        [("changing_front", FAULT)],
    ),
    "short prompts": (
        evidence(observations(prompt_tokens=40), conversations=()),
        [("short_prompts", DOUBT)],
    ),
    "small caches": (
        evidence(observations(always_as_long), states(0.1, 0.1, cache_tokens=800.0)),
        [("small_caches", FAULT)],
    ),
    "prompts that change behind here": (
        evidence(observations(always_as_long), states(0.1, 0.1)),
        [("changed_behind", FAULT)],
    ),
    "others use the engines": (evidence(counted=states(0.3, 0.6, requests=100)), [("other_load", DOUBT)]),
    "an engine was started anew": (
        evidence(
            counted={
                Run.SCATTERED: ({"a": engine(), "b": engine()}, {"a": engine(16, 5e3, 1e3), "b": engine(16, 5e3, 1e3)}),
                Run.AFFINITY: ({"a": engine(), "b": engine(16)}, {"a": engine(16, 5e3, 3e3), "b": engine(9, 2e3, 1e3)}),
            }
        ),
        [("restarted", DOUBT)],
    ),
    "no engines": (evidence(counted={}, probes=Probes(("a",) * 8, ("a", "b") * 4)), [("no_counters", DOUBT)]),
    "an engine without counters": (evidence(counted=silent()), [("no_counters", DOUBT)]),
    "answers all at once": (
        evidence(observations(streamed=False), first=(Answer(200, ttft_s=1.0, streamed=False),)),
        [("unstreamed", DOUBT)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_recognised_and_nothing_else(case):
    seen, expected = CASES[case]
    assert [(finding.code, finding.weight) for finding in diagnose(seen)] == expected


def said(case):
    (finding,) = diagnose(CASES[case][0])
    return f"{finding.seen} {finding.change}"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nobody listens", "connection refused"),
        ("no key", "--api-key env:NAME"),
        ("a wrong key", "is not one that the engines, or the gateway, know"),
        ("no choices", "a body without `choices`: text/html, no JSON"),
        ("no such model", "--model"),
        ("the id is replaced", "32 of 32 turns that carried an id in x-session-id were answered with another one"),
        ("the id is dropped both ways", "were answered with none"),
        ("the id is dropped and the history recognised", "by the history that they carry: not while no picker runs"),
        ("another key than the id", "The gateway answers with the id, so it has it"),
        ("another key, and a gateway that issues no ids", "The gateway hashes x-b"),
        ("one key for all sessions", "all went to a, and none to b"),
        ("caching is off", "a, b: `vllm:cache_config_info` has enable_prefix_caching=False"),
        ("nothing is looked up", "none looked anything up"),
        ("a time at the front", "message 1 (system), most often about character 21, where a time stands"),
        ("small caches", "does not fit well into caches of 1,600 tokens together"),
        ("prompts that change behind here", "Turns find 10% of what they send where 60% was sent before"),
        ("others use the engines", "served 200 requests during the runs, of which 64 were these"),
        ("an engine without counters", "a: no `vllm:prefix_cache_queries_total`"),
    ],
)
def test_a_finding_says_what_was_seen_and_what_to_change(case, words):
    assert words in said(case)


def test_a_signed_id_that_was_changed_is_told_from_a_missing_key():
    seen = failed(Failure.STATUS, 401, "The session id was not issued here, was changed, or has expired")
    (finding,) = diagnose(seen)
    assert "sessions.signed" in finding.change


def test_without_probes_nothing_is_said_of_the_key():
    assert diagnose(evidence(**MISSING, probes=Probes((None,) * 8, ("a",) + (None,) * 7))) == ()


def test_a_small_cache_that_is_hit_as_much_as_can_be_is_none():
    assert diagnose(evidence(counted=states(0.3, 0.6, cache_tokens=800.0))) == ()


def test_a_difference_is_located_and_not_shown():
    before = (Message("system", "abc 2026-01-01T10:00 secret"), Message("user", "u" * 100))
    after = (Message("system", "abc 2026-01-01T10:07 secret"), Message("user", "u" * 100))
    assert difference(before, after) == Difference(1, "system", 20, ", where a time stands")


def test_a_history_that_was_cut_off_is_a_difference_in_its_first_message():
    before = (Message("user", "one day " * 9), Message("user", "two days " * 9))
    assert difference(before, before[1:]) == Difference(1, "user", 1, "")


@given(st.lists(st.builds(Message, st.just("user"), st.text(min_size=1, max_size=9)), min_size=1, max_size=6))
def test_a_prompt_that_is_added_to_has_no_difference(messages):
    prompt = tuple(messages)
    for end in range(1, len(prompt)):
        assert difference(prompt[:end], prompt) is None


def test_a_turn_of_the_scattered_run_is_no_evidence_for_a_lost_id():
    told = [
        Observation(o.run, o.conversation, o.turn, o.sent, o.answer)
        if o.run is Run.AFFINITY
        else Observation(o.run, o.conversation, o.turn, o.sent, Answer(200, ttft_s=0.1, session="other"))
        for o in observations()
    ]
    assert [finding.code for finding in diagnose(evidence(told, probes=HOME))] == []
