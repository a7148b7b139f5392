import msgspec
import pytest

from homing.core.prefix.events import Cleared, Removed, Stored
from homing.ext_proc.kv_wire import Batch, decode
from homing.sim import prefix_cache as sim
from homing.sim.kv_events import EventFormat, EventLog
from homing.sim.tokenizer import token_ids

HAPPENED = [
    sim.Stored((b"\0" * 15 + b"\x07", b"\0" * 15 + b"\x08"), b"", token_ids([1, 2, 3, 4]), "acme"),
    sim.Stored((b"\0" * 15 + b"\x09",), b"\0" * 15 + b"\x08", token_ids([5, 6])),
    sim.Removed((b"\0" * 15 + b"\x07",)),
    sim.Cleared(),
]
MAP = {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": None, "token_ids": [1, 2], "block_size": 2}


def batch(*events: object) -> Batch:
    return decode(msgspec.msgpack.encode([1.5, events, 0]))


@pytest.mark.parametrize(("form", "salts"), [(EventFormat.MAP, (b"acme", b"")), (EventFormat.ARRAY, ())])
def test_both_forms_say_the_same_but_for_the_salt_that_arrays_do_not_have(form: EventFormat, salts: tuple[bytes, ...]):
    _, payload = EventLog(2, form).add(HAPPENED, 12.5)
    assert decode(payload) == Batch(
        (
            Stored((7, 8), None, [1, 2, 3, 4], 2, salts),
            Stored((9,), 8, [5, 6], 2, (b"",) if salts else ()),
            Removed((7,)),
            Cleared(),
        ),
        0,
    )


def test_forms_may_be_mixed_and_fields_left_out_or_added():
    mixed = batch(
        MAP | {"new_field": {"a": 1}},
        ["BlockStored", [8], 7, [3, 4], 2, None, "GPU", "lora", [None], "more"],
        ["BlockStored", [8], 7, [3, 4], 2],
        ["BlockRemoved", [8], "GPU", 3],
    )
    assert mixed == Batch(
        (Stored((7,), None, [1, 2], 2), *[Stored((8,), 7, [3, 4], 2)] * 2, Removed((8,))),
        0,
    )
    assert decode(msgspec.msgpack.encode([1.5, [MAP]])).events == (Stored((7,), None, [1, 2], 2),)


def test_digests_are_cut_to_the_numbers_that_vllm_publishes():
    digest = bytes(range(32))
    number = int.from_bytes(digest[-8:], "big")
    assert batch(MAP | {"block_hashes": [digest], "parent_block_hash": digest}, ["BlockRemoved", [digest]]).events == (
        Stored((number,), number, [1, 2], 2),
        Removed((number,)),
    )


@pytest.mark.parametrize(
    "event",
    [
        {"type": "BlockMoved", "block_hashes": [7]},
        ["BlockMoved", [7]],
        MAP | {"medium": "CPU"},  # another tier
        {"type": "BlockRemoved", "block_hashes": [7], "medium": "CPU"},
        MAP | {"group_idx": 1},  # of another kind of attention
        MAP | {"token_ids": "text"},
        MAP | {"token_ids": [-1, 2]},
        MAP | {"token_ids": [2**32, 2]},
        MAP | {"block_size": 0},
        {},
        [],
        7,
        None,
    ],
)
def test_what_is_not_followed_is_passed_over_and_the_rest_is_taken(event: object):
    assert batch(event, MAP) == Batch((Stored((7,), None, [1, 2], 2),), 1)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode({"ts": 1}), b"\x93\x01\x02\x03"])
def test_what_is_no_batch_is_refused(payload: bytes):
    with pytest.raises(msgspec.DecodeError):
        decode(payload)


@pytest.mark.parametrize(
    ("keys", "extras"),
    [
        ([["acme"], None], (b"acme", b"")),
        ([["lora", "acme"], []], (msgspec.msgpack.encode(["lora", "acme"]), b"")),
        ([[["image", 3]]], (msgspec.msgpack.encode([["image", 3]]),)),
        (None, ()),
    ],
)
def test_what_else_makes_up_a_block_is_told_in_one_form(keys: object, extras: tuple[bytes, ...]):
    (event,) = batch(MAP | {"extra_keys": keys}).events
    assert isinstance(event, Stored)
    assert event.extras == extras
