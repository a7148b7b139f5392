from hypothesis import given
from hypothesis import strategies as st

from homing.core.prefix.holders import Holders, Slots, lengths

CHAIN = list(range(100, 140))


@given(st.lists(st.integers(0, len(CHAIN)), max_size=70), st.integers(0, len(CHAIN)))
def test_each_holder_has_its_length_up_to_the_count(held: list[int], count: int):
    holders = Holders()
    for slot, length in enumerate(held):
        for digest in CHAIN[:length]:
            holders.add(digest, 1 << slot)
    found: dict[int, int] = {}
    for bits, length in lengths(holders, CHAIN, count):
        for slot in range(len(held)):
            if bits >> slot & 1:
                assert slot not in found
                found[slot] = length
    assert found == {slot: min(length, count) for slot, length in enumerate(held) if min(length, count)}


def test_a_digest_that_nobody_holds_takes_no_room():
    holders = Holders()
    holders.add(7, 1)
    holders.add(7, 2)
    holders.remove(7, 1)
    assert holders == {7: 2}
    holders.remove(7, 2)
    holders.remove(8, 1)
    assert holders == {}


def test_bits_are_used_again():
    slots = Slots()
    assert [slots.bit(name) for name in ("a", "b", "c", "a")] == [1, 2, 4, 1]
    slots.free("b")
    slots.free("b")
    assert slots.bit("d") == 2
    assert list(slots.ids(0b111)) == ["a", "d", "c"]
