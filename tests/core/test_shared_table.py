"""What pickers tell each other of their sessions: whatever the order, all tables end up the same."""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from homing.core.journal import Journal, Word
from homing.core.session import CLOSED_S, MAX_SKEW_S, Homes

TTL_S = 1000.0
NOW = 5000.0
A, B = b"a" * 16, b"b" * 16


def table(max_sessions: int = 100) -> tuple[Homes, Journal]:
    homes = Homes(TTL_S, max_sessions)
    return homes, homes.journal()


def told(homes: Homes, journal: Journal, now: float = NOW) -> list[Word]:
    return homes.words(journal, 1000, now)


def test_a_new_session_a_move_and_a_close_are_told_once_each():
    homes, journal = table()
    homes.put(A, "r1", NOW, "r2", 100)
    assert told(homes, journal) == [Word(A, "r1", "r2", NOW, 0.0, 100)]
    assert told(homes, journal) == []
    homes.put(A, "r3", NOW + 1, None, 200)
    assert told(homes, journal, NOW + 3) == [Word(A, "r3", "", NOW + 1, 2.0, 200)]
    assert homes.forget(A, NOW + 4)
    assert told(homes, journal, NOW + 4) == [Word(A, "", "", NOW + 4, 0.0)]


def test_mere_use_is_told_once_in_each_quarter_of_the_idle_time():
    homes, journal = table()
    homes.put(A, "r1", NOW)
    told(homes, journal)
    said = []
    for second in range(1, 1001):
        homes.put(A, "r1", NOW + second)
        said += [second] * len(told(homes, journal, NOW + second))
    assert said == [250, 500, 750, 1000]


def test_changes_of_one_session_before_it_is_told_are_one_word():
    homes, journal = table()
    for replica in ("r1", "r2", "r3"):
        homes.put(A, replica, NOW)
    assert [word.replica for word in told(homes, journal)] == ["r3"]


def test_what_a_sibling_says_is_known_here_and_not_told_again():
    one, journal = table()
    other, echo = table()
    one.put(A, "r1", NOW, "r2", 100)
    assert other.absorb(told(one, journal, NOW + 1), NOW + 1) == 1
    assert (other.get(A, NOW + 1), other.heir(A), other.size(A)) == ("r1", "r2", (NOW, 100))
    assert told(other, echo) == []


def test_the_same_word_twice_changes_nothing():
    one, journal = table()
    other, _ = table()
    one.put(A, "r1", NOW)
    words = told(one, journal)
    assert [other.absorb(words, NOW), other.absorb(words, NOW)] == [1, 0]


def test_the_later_home_holds_whoever_hears_of_it_first():
    early, late = Word(A, "r1", "", NOW, 0.0), Word(A, "r2", "", NOW + 1, 0.0)
    for order in ([early, late], [late, early]):
        homes, _ = table()
        homes.absorb(order, NOW + 1)
        assert homes.get(A, NOW + 1) == "r2"


def test_at_the_same_moment_all_decide_alike():
    for order in (["r1", "r2"], ["r2", "r1"]):
        homes, _ = table()
        homes.absorb([Word(A, replica, "", NOW, 0.0) for replica in order], NOW)
        assert homes.get(A, NOW) == "r2"


def test_a_session_lives_its_whole_idle_time_also_where_its_last_use_was_not_told():
    """Who heard of it keeps it a quarter longer, once: it is not told on as a later use."""
    (one, journal), (other, _) = table(), table()
    used = NOW + TTL_S / 4 - 1
    one.put(A, "r", NOW)
    other.absorb(told(one, journal), NOW)
    one.put(A, "r", used)
    assert told(one, journal) == []
    assert other.get(A, used + TTL_S - 1) == "r"
    again, _ = table()
    again.absorb(other.words_of([A], used + TTL_S - 1), used + TTL_S - 1)
    assert (again.get(A, used + TTL_S - 1), again.get(A, used + TTL_S + 2)) == ("r", None)
    assert other.get(A, used + TTL_S + 2) is None
    other.put(A, "r", used + TTL_S)
    assert other.get(A, used + 2 * TTL_S) is None, "what was used here is known for certain"


def test_use_elsewhere_prolongs_even_where_the_home_is_older():
    homes, _ = table()
    homes.put(A, "r2", NOW, tokens=10)
    assert homes.absorb([Word(A, "r1", "", NOW - 5, 0.0, 99)], NOW + 900) == 1
    assert (homes.get(A, NOW + 1500), homes.size(A)) == ("r2", (NOW + 900, 99))


def test_who_says_something_older_is_told_the_newer():
    homes, journal = table()
    homes.put(A, "r2", NOW)
    told(homes, journal)
    homes.absorb([Word(A, "r1", "", NOW - 5, 5.0)], NOW)
    assert told(homes, journal) == [Word(A, "r2", "", NOW, 0.0)]


def test_a_change_here_comes_after_what_it_changes_even_if_that_clock_was_ahead():
    homes, journal = table()
    homes.absorb([Word(A, "r1", "", NOW + 60, 0.0)], NOW)
    homes.put(A, "r2", NOW + 1)
    assert told(homes, journal, NOW + 1)[0].stamp > NOW + 60


def test_an_older_word_does_not_open_a_closed_session_again_and_a_later_one_does():
    homes, journal = table()
    homes.put(A, "r1", NOW)
    homes.forget(A, NOW + 1)
    homes.absorb([Word(A, "r1", "", NOW, 0.0)], NOW + 2)
    assert homes.get(A, NOW + 2) is None
    assert told(homes, journal, NOW + 2) == [Word(A, "", "", NOW + 1, 0.0)]
    homes.absorb([Word(A, "r2", "", NOW + 3, 0.0)], NOW + 3)
    assert homes.get(A, NOW + 3) == "r2"


def test_a_close_reaches_a_table_that_knew_the_session_and_one_that_did_not():
    one, journal = table()
    assert not one.forget(A, NOW + 1)
    close = told(one, journal)
    for known in (True, False):
        other, _ = table()
        if known:
            other.put(A, "r1", NOW)
        other.absorb(close, NOW + 1)
        other.absorb([Word(A, "r1", "", NOW, 0.0)], NOW + 1)
        assert other.get(A, NOW + 1) is None


def test_that_a_session_was_closed_is_itself_forgotten():
    homes, _ = table()
    homes.forget(A, NOW)
    homes.forget(B, NOW + CLOSED_S)
    homes.absorb([Word(A, "r1", "", NOW - 1, 0.0), Word(B, "r1", "", NOW - 1, 0.0)], NOW + CLOSED_S)
    assert (homes.get(A, NOW + CLOSED_S), homes.get(B, NOW + CLOSED_S)) == ("r1", None)


def test_a_table_that_tells_nobody_remembers_no_closed_session():
    homes = Homes(TTL_S, 100)
    homes.put(A, "r1", NOW)
    homes.forget(A, NOW)
    assert homes.words_of([A], NOW) == []


@pytest.mark.parametrize(
    "word",
    [
        Word(A, "r1", "", NOW, -1.0),
        Word(A, "r1", "", NOW, TTL_S * 1.25),
        Word(A, "r1", "", NOW, nan),
        Word(A, "r1", "", nan, 0.0),
        Word(A, "r1", "", inf, 0.0),
        Word(A, "r1", "", NOW + MAX_SKEW_S, 0.0),
    ],
)
def test_what_cannot_be_is_not_believed(word: Word):
    homes, journal = table()
    assert homes.absorb([word], NOW) == 0
    assert (len(homes), told(homes, journal)) == (0, [])


@pytest.mark.parametrize(
    "fields", [(b"short", "r", "", 0.0, 0.0), (A, "r" * 129, "", 0.0, 0.0), (A, "r", "", "x", 0.0)]
)
def test_a_word_of_another_form_is_refused(fields: tuple[object, ...]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Word)


def test_a_table_that_hears_stays_within_its_bound():
    homes, _ = table(max_sessions=3)
    homes.absorb([Word(bytes([i]) * 16, "r", "", NOW, 0.0) for i in range(10)], NOW)
    assert (len(homes), homes.evicted) == (3, 7)


def test_a_full_journal_tells_the_whole_table_instead():
    homes = Homes(TTL_S, 100)
    journal = homes.journal()
    journal._max = 2
    for i in range(5):
        homes.put(bytes([i]) * 16, "r", NOW)
    assert (len(journal), journal.lost) == (2, True)
    assert {word.digest[0] for word in told(homes, journal)} == {0, 1, 2, 3, 4}
    assert (len(journal), journal.lost) == (0, False)


def test_what_changes_while_the_whole_table_is_told_again_is_told_first_and_does_not_begin_it_anew():
    homes = Homes(TTL_S, 100)
    journal = homes.journal()
    journal._max = 2
    digests = [bytes([i]) * 16 for i in range(8)]
    for digest in digests[:6]:
        homes.put(digest, "r", NOW)
    heard = [word.digest for word in homes.words(journal, 2, NOW)]
    for digest in digests[6:]:
        homes.put(digest, "r", NOW)
        first, *more = (word.digest for word in homes.words(journal, 3, NOW))
        assert first == digest
        heard += [first, *more]
    while more := homes.words(journal, 3, NOW):
        heard += [word.digest for word in more]
    assert set(heard) == {*digests}
    assert (len(journal), journal.lost) == (0, False)


def test_sessions_that_left_are_not_told_of():
    homes, journal = table(max_sessions=1)
    homes.put(A, "r", NOW)
    homes.put(B, "r", NOW)
    assert [word.digest for word in told(homes, journal)] == [B]


class Exchanging(RuleBasedStateMachine):
    """Three pickers whose clocks differ; what they say is kept, and delivered in any order, often twice."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.skew = (0.0, -7.0, 0.25)
        self.tables = [table() for _ in self.skew]
        self.said: list[tuple[int, list[Word]]] = []

    digests = st.sampled_from([A, B, b"c" * 16])
    pickers = st.integers(0, 2)

    def clock(self, picker: int) -> float:
        return self.now + self.skew[picker]

    @rule(picker=pickers, digest=digests, home=st.sampled_from(["r1", "r2"]), heir=st.sampled_from([None, "r3"]))
    def put(self, picker: int, digest: bytes, home: str, heir: str | None):
        self.tables[picker][0].put(digest, home, self.clock(picker), heir)

    @rule(picker=pickers, digest=digests)
    def forget(self, picker: int, digest: bytes):
        self.tables[picker][0].forget(digest, self.clock(picker))

    @rule(seconds=st.sampled_from([0.0, 0.1, 2.0]))
    def wait(self, seconds: float):
        self.now += seconds

    @rule(picker=pickers)
    def say(self, picker: int):
        homes, journal = self.tables[picker]
        self.said.append((picker, homes.words(journal, 2, self.clock(picker))))

    @rule(data=st.data(), listener=pickers)
    def hear(self, data: st.DataObject, listener: int):
        if self.said:
            speaker, words = data.draw(st.sampled_from(self.said))
            if speaker != listener:
                self.tables[listener][0].absorb(words, self.clock(listener))

    @invariant()
    def once_all_is_heard_all_know_the_same(self):
        """What was said reaches everybody, then what is still in the journals. On copies: it holds at every moment."""
        tables = [self.copy(i) for i in range(3)]
        for speaker, words in self.said:
            self.deliver(tables, speaker, words)
        for _ in range(3):  # what is still to be said, and the answers to what was older
            for i, (homes, journal) in enumerate(tables):
                self.deliver(tables, i, homes.words(journal, 1000, self.clock(i)))
        assert [len(journal) for _, journal in tables] == [0, 0, 0]
        known = [
            [(w.replica, w.heir, w.stamp) for w in homes.words_of([A, B, b"c" * 16], self.now)] for homes, _ in tables
        ]
        assert known[0] == known[1] == known[2]

    def deliver(self, tables: list[tuple[Homes, Journal]], speaker: int, words: list[Word]) -> None:
        for i, (homes, _) in enumerate(tables):
            if i != speaker:
                homes.absorb(words, self.clock(i))

    def copy(self, picker: int) -> tuple[Homes, Journal]:
        homes, journal = self.tables[picker]
        copied, pending = table()
        copied.absorb(homes.words_of([A, B, b"c" * 16], self.clock(picker)), self.clock(picker))
        digests = journal.take(1000)
        for noted in (journal, pending):
            noted.restart(digests)
        return copied, pending


TestTablesConverge = Exchanging.TestCase
TestTablesConverge.settings = settings(max_examples=60, stateful_step_count=25)

words = st.builds(
    Word,
    st.sampled_from([A, B]),
    st.sampled_from(["", "r1", "r2"]),
    st.sampled_from(["", "r3"]),
    st.sampled_from([NOW, NOW + 1, NOW + 2]),
    st.sampled_from([0.0, 1.0]),
)


@given(st.lists(words, max_size=6), st.randoms(use_true_random=False))
def test_any_order_and_any_repetition_of_the_same_words_is_the_same_table(said: list[Word], random):
    def heard(order: list[Word]) -> list[tuple[object, ...]]:
        homes, _ = table()
        homes.absorb(order, NOW + 3)
        return [(w.digest, w.replica, w.heir, w.stamp) for w in homes.words_of([A, B], NOW + 3)]

    again = [*said, *random.choices(said, k=3)] if said else []
    random.shuffle(again)
    assert heard(again) == heard(said)
