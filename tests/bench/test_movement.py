from pathlib import Path

import pytest

from bench.movement.__main__ import SIZES
from bench.movement.changes import rows
from bench.movement.page import page
from homing.core.movement import SAMPLE, moved, must_move, sample

PAGE = Path(__file__).parents[2] / "docs" / "movement.md"


def test_the_page_in_the_docs_is_what_the_command_prints():
    assert PAGE.read_text() == page(rows(SIZES, sample(SAMPLE)), SAMPLE)


def test_no_hash_moves_less_than_it_must_or_anything_on_a_drain():
    for row in rows((4,), sample(2000)):
        assert all(share >= row.least - 0.05 for share in (row.ring, row.maglev, row.ketama)), row
        if row.change == "drain one":
            assert (row.ring, row.maglev, row.ketama) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, 0.0),
        ({"a": 1, "b": 1}, {"a": 1}, 0.5),
        ({"a": 1}, {"a": 1, "b": 3}, 0.75),
        ({"a": 1, "b": 1}, {"c": 1}, 1.0),
        ({"a": 1}, {}, 0.0),
    ],
)
def test_what_must_move_is_what_others_gain(before: dict[str, int], after: dict[str, int], share: float):
    assert must_move(before.items(), after.items()) == share


def test_keys_that_change_their_owner_are_counted():
    keys = [b"1", b"2", b"3", b"4"]
    assert moved(lambda key: "a", lambda key: "b" if key == b"2" else "a", keys) == 0.25
    assert len(set(sample(500))) == 500
