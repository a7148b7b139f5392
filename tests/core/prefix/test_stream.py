from homing.core.prefix.stream import Stream, Verdict


def test_batches_in_a_row_are_applied():
    stream = Stream()
    assert [stream.heard(n) for n in (0, 1, 2)] == [Verdict.NEXT] * 3
    assert stream.wanted == 3


def test_who_comes_late_asks_for_the_beginning_and_skips_what_the_replay_brought():
    stream = Stream()
    assert stream.heard(5) is Verdict.HOLE
    assert [stream.replayed(n) for n in range(7)] == [Verdict.NEXT] * 7
    assert [stream.heard(n) for n in (5, 6, 7)] == [Verdict.KNOWN, Verdict.KNOWN, Verdict.NEXT]


def test_a_hole_is_asked_for_from_the_missing_batch_on():
    stream = Stream()
    stream.heard(0)
    assert (stream.heard(3), stream.wanted) == (Verdict.HOLE, 1)
    assert [stream.replayed(n) for n in (1, 2, 3)] == [Verdict.NEXT] * 3
    assert [stream.heard(n) for n in (3, 4)] == [Verdict.KNOWN, Verdict.NEXT]


def test_what_the_engine_has_not_kept_is_skipped():
    stream = Stream()
    assert stream.heard(9) is Verdict.HOLE
    assert stream.replayed(4) is Verdict.HOLE
    stream.skip_to(4)
    assert [stream.replayed(n) for n in (4, 3, 5)] == [Verdict.NEXT, Verdict.KNOWN, Verdict.NEXT]
    stream.skip_to(9)
    assert stream.heard(9) is Verdict.NEXT


def test_a_number_that_falls_is_another_life_of_the_engine():
    stream = Stream()
    for n in range(4):
        stream.heard(n)
    assert (stream.heard(0), stream.heard(0), stream.heard(1)) == (Verdict.RESTARTED, Verdict.NEXT, Verdict.NEXT)
    assert stream.heard(1) is Verdict.RESTARTED
    assert stream.heard(1) is Verdict.HOLE
