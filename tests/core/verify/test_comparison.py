"""Two runs beside one another, and the verdict on them."""

import pytest
from verified import CONVERSATIONS, TURNS, always_as_long, as_it_should_be, engine, observations, states

from homing.core.verify.comparison import ANSWERS, ENGINES, Hits, compare
from homing.core.verify.observed import Answer, Counters, Failure, Observation, since, who_served
from homing.core.verify.plan import Run
from homing.core.verify.verdict import Effect, judge


def counted(scattered, affinity):
    return {run: since(after, before) for run, (before, after) in states(scattered, affinity).items()}


def reversed_runs(run, conversation, turn):
    other = Run.SCATTERED if run is Run.AFFINITY else Run.AFFINITY
    return as_it_should_be(other, conversation, turn)


def test_turns_are_compared_by_their_medians_and_means():
    told = compare(observations(), counted(0.3, 0.8))
    assert [row.turn for row in told.turns] == [1, 2, 3, 4]
    assert told.turns[0].ratio.value == pytest.approx(1.0)
    assert told.turns[3].scattered.median_s == pytest.approx(0.401)
    assert told.turns[3].affinity.median_s == pytest.approx(0.021)
    assert told.answered == CONVERSATIONS * TURNS
    assert told.itl.value == 1.0


def test_hit_rates_are_the_engines_where_they_tell_them():
    told = compare(observations(cached_tokens=0), counted(0.3, 0.8))
    assert told.source == ENGINES
    assert told.hits[Run.AFFINITY].rate == 0.8
    assert [(row.engine, row.scattered.rate, row.affinity.requests) for row in told.engines] == [
        ("a", 0.3, 16.0),
        ("b", 0.3, 16.0),
    ]


def test_hit_rates_are_the_answers_where_no_engine_tells_them():
    told = compare(observations(cached_tokens=125, replica="r1"), {})
    assert told.source == ANSWERS
    assert told.hits[Run.SCATTERED] == Hits(CONVERSATIONS * (500 + 1000 + 1500 + 2000), 125 * 32, 32)
    assert [row.engine for row in told.engines] == ["r1"]


def test_hit_rates_are_not_known_where_nobody_tells_them():
    told = compare(observations(), {run: {"a": None} for run in Run})
    assert (told.source, dict(told.hits)) == ("", {})


def test_only_turns_that_both_runs_have_answered_are_compared():
    told = [o for o in observations() if not (o.run is Run.AFFINITY and o.conversation == 0)]
    told.append(Observation(Run.AFFINITY, 0, 1, None, Answer(failure=Failure.LATE)))
    found = compare(told, {})
    assert found.answered == (CONVERSATIONS - 1) * TURNS
    assert found.failed == {Run.SCATTERED: 0, Run.AFFINITY: 1}


def test_an_engine_that_restarted_counts_from_nothing():
    assert engine(3, 100, 50).since(engine(9, 900, 90)) == engine(3, 100, 50)
    assert engine(9, 900, 90).since(engine(3, 100, 50)) == engine(6, 800, 40)


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ({"a": engine(1), "b": engine(0)}, "a"),
        ({"a": engine(1), "b": engine(1)}, None),
        ({"a": engine(2), "b": engine(0)}, None),
        ({"a": engine(0), "b": engine(0)}, None),
        ({"a": None, "b": engine(1)}, "b"),
    ],
)
def test_who_served_is_the_only_one_that_counted_one_more(after, name):
    assert who_served(after, {"a": engine(0), "b": engine(0)}) == name


@pytest.mark.parametrize(
    ("time", "scattered", "affinity", "effect"),
    [
        (as_it_should_be, 0.3, 0.8, Effect.SEEN),
        (always_as_long, 0.3, 0.8, Effect.HITS_ONLY),
        (always_as_long, 0.3, 0.31, Effect.MISSING),
        (always_as_long, 0.8, 0.3, Effect.WORSE),
        (reversed_runs, 0.3, 0.8, Effect.WORSE),
        (as_it_should_be, 0.3, 0.31, Effect.MISSING),  # sooner for another reason
    ],
)
def test_the_verdict_follows_from_times_and_hit_rates(time, scattered, affinity, effect):
    assert judge(compare(observations(time), counted(scattered, affinity))).effect is effect


def test_engines_that_look_nothing_up_gain_nothing_however_the_times_are():
    idle = {run: {"a": engine(32)} for run in Run}
    assert judge(compare(observations(), idle)).effect is Effect.MISSING


def test_times_alone_make_a_verdict_where_no_hit_rate_is_known():
    assert judge(compare(observations(), {})).effect is Effect.SEEN
    assert judge(compare(observations(always_as_long), {})).effect is Effect.MISSING


def test_too_few_conversations_say_nothing_by_their_times():
    assert judge(compare(observations(conversations=2), {})).effect is Effect.UNKNOWN
    assert judge(compare(observations(conversations=2), counted(0.3, 0.8))).effect is Effect.HITS_ONLY


def test_the_verdict_is_in_words():
    verdict = judge(compare(observations(), counted(0.3, 0.8)))
    assert verdict.headline == "Affinity works: later turns are answered sooner."
    first, later, rates, between = verdict.details
    assert first.startswith(
        "The first turn is equal, as it should be: on average 100.9 ms by round robin, 100.9 with affinity"
    )
    assert later.startswith(
        "Later turns fall to 7%: on average 300.9 ms by round robin, 20.9 with affinity, 0.07 times, between"
    )
    assert rates == "Hit rate 80% with affinity against 30% by round robin, by the engines' counters."
    assert between.startswith("The time between tokens stays as it is: on average 10.0 ms")


def test_a_first_turn_that_differs_is_said():
    def slower(run, conversation, turn):
        return as_it_should_be(run, conversation, turn) * (2 if run is Run.AFFINITY else 1)

    details = judge(compare(observations(slower), counted(0.3, 0.8))).details
    assert details[0].startswith("The first turn differs")


def test_a_first_turn_that_differs_by_noise_is_said_to():
    def noisy(run, conversation, turn):
        late = run is Run.AFFINITY and conversation == 0
        return as_it_should_be(run, conversation, turn) * (9 if late else 1)

    details = judge(compare(observations(noisy), counted(0.3, 0.8))).details
    assert details[0].startswith("The first turn is equal, as it should be, but for noise")


def test_of_few_conversations_times_are_told_without_a_word_about_them():
    details = judge(compare(observations(conversations=2), counted(0.3, 0.8))).details
    assert details[0] == "The first turn: on average 100.5 ms by round robin, 100.5 with affinity."
    assert details[1] == "Later turns: on average 300.5 ms by round robin, 20.5 with affinity."
    assert details[-1] == "Measured on 2 conversations: of fewer than 5 no spread can be told."


def test_nothing_answered_is_no_verdict():
    assert judge(compare((), {})).effect is Effect.UNKNOWN


def test_counters_that_an_engine_lacks_stay_unknown():
    assert Counters(served=3).since(Counters(served=1)) == Counters(served=2)
