from hypothesis import given
from hypothesis import strategies as st

from homing.core.prefix import placed
from homing.core.prefix.placed import PlacedPrompts
from homing.core.prefix.prompt import Prompt


def prompt(*marks: int, each: int = 100) -> Prompt:
    return Prompt(marks, tuple(each * (i + 1) for i in range(len(marks))))


def counts(index: PlacedPrompts, asked: Prompt) -> dict[str, int]:
    return {replica: count for replica, (count, _) in index.held(asked).items()}


def test_a_replica_holds_what_it_was_sent():
    index = PlacedPrompts()
    index.put("a", prompt(1, 2, 3), 10.0)
    index.put("b", prompt(1, 2, 4), 11.0)
    index.put("c", prompt(9), 12.0)
    assert index.held(prompt(1, 2, 3, 5)) == {"a": (3, 10.0), "b": (2, 11.0)}
    assert index.held(prompt(7)) == {}
    assert index.held(prompt()) == {}


def test_the_longest_unused_leaves_when_the_cache_is_full_and_chains_leave_from_their_ends():
    index = PlacedPrompts()
    index.resize("a", 500)
    index.put("a", prompt(1, 2, 3), 0.0)
    index.put("a", prompt(1, 4, 5), 1.0)
    assert len(index) == 5
    index.put("a", prompt(1, 6), 2.0)
    assert counts(index, prompt(1, 2, 3)) == {"a": 2}
    assert counts(index, prompt(1, 4, 5)) == {"a": 3}
    index.put("a", prompt(8, 9), 3.0)
    assert counts(index, prompt(1, 2, 3)) == {"a": 1}


def test_a_prompt_larger_than_the_cache_keeps_its_beginning():
    index = PlacedPrompts()
    index.resize("a", 250)
    index.put("a", prompt(1, 2, 3, 4), 0.0)
    assert counts(index, prompt(1, 2, 3, 4)) == {"a": 2}


def test_a_smaller_cache_forgets_at_once():
    index = PlacedPrompts()
    index.put("a", prompt(1, 2, 3), 0.0)
    index.resize("a", 100)
    assert counts(index, prompt(1, 2, 3)) == {"a": 1}


def test_a_cold_replica_holds_nothing_and_the_others_what_they_held():
    index = PlacedPrompts()
    index.put("a", prompt(1, 2), 0.0)
    index.put("b", prompt(1), 0.0)
    index.forget("a")
    index.forget("nobody")
    assert counts(index, prompt(1, 2)) == {"b": 1}
    index.put("c", prompt(1, 2), 1.0)  # takes the free bit
    assert counts(index, prompt(1, 2)) == {"b": 1, "c": 2}


def test_the_number_of_marks_is_bounded_for_each_replica(monkeypatch):
    monkeypatch.setattr(placed, "MAX_MARKS", 10)
    index = PlacedPrompts()
    for i in range(50):
        index.put("a", prompt(i, each=0), float(i))
    assert len(index) == 10
    assert counts(index, prompt(49)) == {"a": 1}


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
        max_size=30,
    )
)
def test_what_is_held_is_a_beginning_of_what_was_sent_and_fits(sent: list[tuple[str, list[int]]]):
    index = PlacedPrompts()
    for replica in "ab":
        index.resize(replica, 700)
    chained = [(replica, prompt(*(hash(tuple(path[: i + 1])) for i in range(len(path))))) for replica, path in sent]
    for now, (replica, path) in enumerate(chained):
        index.put(replica, path, float(now))
        assert index.held(path)[replica] == (len(path.marks), float(now))
    assert len(index) <= 14
    for _, path in chained:
        for replica, count in counts(index, path).items():
            assert any(path.marks[:count] == other.marks[:count] for r, other in chained if r == replica)
