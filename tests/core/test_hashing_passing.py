"""A table some of whose hosts are down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.core.hashing import Ketama, Passing

HOSTS = [(f"10.0.0.{i}:8000", 1) for i in range(6)]
TABLE = Ketama(HOSTS)


@given(st.binary(), st.sets(st.integers(0, 5)))
def test_the_next_host_that_is_up_takes_the_keys_of_one_that_is_down(key: bytes, up: set[int]) -> None:
    ups = sorted(up)
    passing = Passing(TABLE, ups)
    assert [ups[place] for place in passing.walk(key)] == [host for host in TABLE.walk(key) if host in up]
    owner = passing.owner(key)
    assert (None if owner is None else ups[owner]) == next((h for h in TABLE.walk(key) if h in up), None)
