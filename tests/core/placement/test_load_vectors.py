"""What siblings tell each other of their load."""

from __future__ import annotations

import msgspec

from homing.core.placement.load import URGENT_TOKENS, VALID_S, Load, Vector

A, B = ("p", "gpu-0"), ("p", "gpu-1")


def test_a_vector_is_what_this_picker_sent_and_nothing_of_what_others_said():
    load = Load()
    load.absorb("other", {A: Vector(in_flight=7)}, 0.0)
    load.begin(B)
    assert {place: v.in_flight for place, v in load.vectors(0.0).items()} == {B: 1}


def test_what_siblings_say_adds_up_and_each_word_replaces_the_one_before():
    load = Load()
    load.absorb("one", {A: Vector(100.0, 1, 2, 1000.0)}, 0.0)
    load.absorb("two", {A: Vector(10.0, 2, 3, 500.0), B: Vector(1.0, 1, 1, 1.0)}, 0.0)
    assert load.others(A) == Vector(110.0, 3, 5, 1500.0)
    load.absorb("one", {}, 0.1)
    assert load.others(A) == Vector(10.0, 2, 3, 500.0)


def test_contexts_in_flight_are_counted_until_their_request_ends_and_told():
    load = Load()
    load.begin(A, 100.0, 0.0, context=5000.0)
    load.begin(A, 10.0, 0.0, context=300.0)
    load.end(A, 100.0, 5000.0)
    assert load.vectors(0.0)[A].context_tokens == 300.0
    load.absorb("other", {A: Vector(context_tokens=40.0)}, 0.0)
    assert (load.others(A).context_tokens, load.meter(A).context_tokens) == (40.0, 300.0)
    load.forget(A)
    assert (load.others(A).context_tokens, load.meter(A).context_tokens) == (40.0, 300.0)
    load.end(A, 10.0, 300.0)
    assert load.meter(A).context_tokens == 0.0


def test_a_sibling_that_falls_silent_counts_for_nothing_after_a_second():
    load = Load()
    load.absorb("one", {A: Vector(100.0)}, 0.0)
    load.absorb("two", {A: Vector(1.0)}, VALID_S - 0.1)
    load.vectors(VALID_S)
    assert load.others(A) == Vector(1.0)


def waiting(load: Load, now: float) -> float:
    return load.meter(A).waiting(now)


def test_what_siblings_send_drains_with_what_is_sent_here_at_one_speed():
    one, other = Load(), Load()
    one.begin(A, 8000.0, 0.0)
    other.begin(A, 4000.0, 0.0)
    one.absorb("other", other.vectors(0.0), 0.0)
    other.absorb("one", one.vectors(0.0), 0.0)
    assert (waiting(one, 0.5), waiting(other, 0.5)) == (8000.0, 8000.0)
    assert [load.vectors(0.5)[A].pending_tokens for load in (one, other)] == [4000.0, 0.0], "each was there first"
    one.absorb("other", other.vectors(0.5), 0.5)
    assert waiting(one, 1.5) == 0.0, "told again, it is not there again"


def test_of_a_sibling_that_speaks_for_the_first_time_what_still_waits_counts():
    load = Load()
    load.absorb("other", {A: Vector(300.0, arrived_tokens=9000.0, uncached_tokens=300.0)}, 0.0)
    assert waiting(load, 0.0) == 300.0
    load.absorb("other", {A: Vector(350.0, arrived_tokens=9050.0, uncached_tokens=350.0)}, 0.0)
    assert waiting(load, 0.0) == 350.0


def test_a_word_that_was_overtaken_is_left_alone():
    load = Load()
    older, newer = (
        Vector(tokens, n, arrived_tokens=tokens, uncached_tokens=tokens) for tokens, n in ((100, 1), (150, 2))
    )
    for vector in (older, newer, older, newer):
        load.absorb("other", {A: vector}, 0.0)
    assert waiting(load, 0.0) == 150.0
    assert load.others(A).in_flight == 2


def test_what_was_sent_before_a_silence_counts_once():
    load = Load()
    load.absorb("other", {A: Vector(80_000.0, 1, arrived_tokens=80_000.0, uncached_tokens=80_000.0)}, 0.0)
    load.absorb("other", {A: Vector(68_000.0, 2, arrived_tokens=84_000.0, uncached_tokens=84_000.0)}, VALID_S + 1.0)
    assert waiting(load, 2.0) == 84_000.0 - 16_000.0
    assert load.others(A).in_flight == 2


def test_a_sibling_that_counts_anew_is_heard_after_a_second():
    """It forgot the replica, which came back within 100 ms."""
    load = Load()
    for now, tokens in ((0.0, 800.0), (0.9, 10.0), (1.1, 10.0), (1.2, 30.0)):
        load.absorb("other", {A: Vector(tokens, 1, arrived_tokens=tokens, uncached_tokens=tokens)}, now)
    assert waiting(load, 1.2) == 20.0


def test_of_a_sibling_of_a_former_version_what_it_has_pending_counts_as_it_says():
    load = Load()
    load.absorb("other", {A: Vector(300.0)}, 0.0)
    load.absorb("other", {A: Vector(200.0)}, 0.1)
    assert waiting(load, 0.1) == 200.0


def test_what_a_sibling_learned_of_the_queue_is_learned_here_and_told_for_a_second_only():
    one, other = Load(), Load()
    first = one.begin(A, 8000.0, 0.0)
    one.begin(A, 8000.0, 0.0)
    other.absorb("one", one.vectors(0.0), 0.0)
    other.absorb("one", one.vectors(1.9), 1.9)
    assert waiting(other, 2.0) == 0.0
    one.meter(A).first_token(first, 1.5, 2.0)  # half a second later than thought
    said = one.vectors(2.0)
    assert (said[A].heard_ago_s, said[A].waited_tokens) == (0.5, 8000.0)
    other.absorb("one", said, 2.0)
    assert waiting(other, 2.0) == waiting(one, 2.0) == 4000.0
    assert one.vectors(2.0 + VALID_S)[A].heard_ago_s == 0.0


def test_a_picker_that_forgets_a_replica_goes_on_counting_what_it_sends_there():
    load = Load()
    load.begin(A, 8000.0, 0.0)
    load.forget(A)
    load.begin(A, 50.0, 0.0)
    assert (load.vectors(0.0)[A].arrived_tokens, waiting(load, 0.0)) == (8050.0, 50.0)


def test_only_what_keeps_an_engine_busy_is_urgent():
    load, calls = Load(), []
    load.when_urgent(lambda: calls.append("one"))
    load.when_urgent(lambda: calls.append("two"))
    load.begun(URGENT_TOKENS - 1)
    assert calls == []
    load.begun(URGENT_TOKENS)
    assert calls == ["one", "two"]


def test_a_vector_travels_as_a_short_array():
    assert msgspec.json.encode(Vector(1.5, 2, 3, 4.0)).startswith(b"[1.5,2,3,4.0")
    assert msgspec.json.decode(b"[1.5,2]", type=Vector) == Vector(1.5, 2)


def test_whose_answer_has_ended_does_not_wait():
    load = Load()
    for tokens in (50_000.0, 20_000.0, 10.0):
        load.begin(A, tokens, 0.0, context=tokens)
    load.end(A, 50_000.0, 50_000.0)
    assert load.meter(A).waiting(0.1) == 20_010.0
    assert load.vectors(0.1)[A].uncached_tokens == 20_010
    load.end(A, 20_000.0, 20_000.0)
    assert load.begin(A, 5.0, 0.1) == 70_015.0
    assert load.meter(A).waiting(0.1) == 15.0


def test_what_siblings_have_in_flight_may_wait_too():
    ours, theirs = Load(), Load()
    theirs.begin(A, 30_000.0, 0.0)
    ours.absorb("other", theirs.vectors(0.0), 0.0)
    assert ours.meter(A).waiting(0.0) == 30_000.0
    theirs.end(A, 30_000.0)
    ours.absorb("other", theirs.vectors(0.1), 0.1)
    assert ours.meter(A).waiting(0.1) == 0.0
