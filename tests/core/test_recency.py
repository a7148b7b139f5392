"""The order of use equals that of a plain list, whatever is added, renewed and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.core.recency import Recency


@given(st.lists(st.tuples(st.sampled_from(["add", "renew", "remove"]), st.integers(0, 30)), max_size=60))
def test_the_order_is_that_of_a_list(steps: list[tuple[str, int]]):
    recency, model = Recency(), list[int]()
    for what, which in steps:
        if what == "add":
            slot = recency.add()
            assert slot not in model
            model.append(slot)
        elif model:
            slot = model.pop(which % len(model))
            if what == "renew":
                recency.renew(slot)
                model.append(slot)
            else:
                recency.remove(slot)
        assert list(recency) == model
        assert recency.oldest() == (model[0] if model else 0)


def test_slots_are_used_again():
    recency = Recency()
    first, second = recency.add(), recency.add()
    recency.remove(first)
    assert (first, second, recency.add(), recency.add()) == (1, 2, 1, 3)
