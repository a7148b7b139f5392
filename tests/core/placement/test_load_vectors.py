"""What siblings tell each other of their load."""

from __future__ import annotations

import msgspec

from homing.core.placement.load import VALID_S, Load, Vector

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
    load.end(A, 5000.0)
    assert load.vectors(0.0)[A].context_tokens == 300.0
    load.absorb("other", {A: Vector(context_tokens=40.0)}, 0.0)
    assert (load.others(A).context_tokens, load.meter(A).context_tokens) == (40.0, 300.0)
    load.forget(A)
    assert (load.others(A).context_tokens, load.meter(A).context_tokens) == (40.0, 300.0)
    load.end(A, 300.0)
    assert load.meter(A).context_tokens == 0.0


def test_a_sibling_that_falls_silent_counts_for_nothing_after_a_second():
    load = Load()
    load.absorb("one", {A: Vector(100.0)}, 0.0)
    load.absorb("two", {A: Vector(1.0)}, VALID_S - 0.1)
    load.vectors(VALID_S)
    assert load.others(A) == Vector(1.0)


def test_a_vector_travels_as_a_short_array():
    assert msgspec.json.encode(Vector(1.5, 2, 3, 4.0)).startswith(b"[1.5,2,3,4.0")
    assert msgspec.json.decode(b"[1.5,2]", type=Vector) == Vector(1.5, 2)
