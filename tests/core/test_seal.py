"""What is signed is taken until it ends; what is changed is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.hashing import Ring
from homing.core.placement.minting import mint
from homing.core.seal import MAC_BYTES, Opened, Seal

NOW = 1_800_000_000.0
OLD, NEW = b"an old key of bytes", b"a new key of bytes."
SEAL = Seal((NEW, OLD), b"session", 3600.0)
ID = b"0b9a3a5e-8d9f-4f57-9bb5-0e0b2a2a9a10-1f"


@given(st.binary(max_size=60).filter(bool), st.binary(max_size=20), st.floats(0, 3599))
def test_what_was_signed_is_opened_until_it_ends(payload: bytes, tenant: bytes, later_s: float):
    sealed = SEAL.sign(payload, tenant, NOW)
    opened = SEAL.open(sealed, tenant, NOW + later_s)
    assert opened == Opened(payload, NOW + 3600 - (NOW + later_s))
    assert SEAL.open(sealed, tenant, NOW + 3600) is None


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_no_byte_of_it_may_be_another(position: int, change: int):
    sealed = bytearray(SEAL.sign(ID, b"acme", NOW))
    sealed[position % len(sealed)] ^= change
    assert SEAL.open(bytes(sealed), b"acme", NOW) is None


@given(st.binary(max_size=300))
def test_anything_may_be_tried(sealed: bytes):
    assert SEAL.open(sealed, b"", NOW) is None


@pytest.mark.parametrize("tenant", [b"", b"acm", b"acme2", b"acme\0"])
def test_it_is_of_its_tenant_alone(tenant: bytes):
    assert SEAL.open(SEAL.sign(ID, b"acme", NOW), tenant, NOW) is None


def test_keys_are_changed_without_a_break():
    of_old = Seal((OLD,), b"session", 3600.0).sign(ID, b"", NOW)
    assert SEAL.open(of_old, b"", NOW) is not None
    assert Seal((NEW,), b"session", 3600.0).open(of_old, b"", NOW) is None
    assert SEAL.sign(ID, b"", NOW) == Seal((NEW,), b"session", 3600.0).sign(ID, b"", NOW)


def test_a_seal_for_another_purpose_is_another():
    assert SEAL.open(Seal((NEW,), b"cookie", 3600.0).sign(ID, b"", NOW), b"", NOW) is None


def test_a_longer_life_cannot_be_written_in():
    payload, ends, mac = SEAL.sign(ID, b"", NOW).rsplit(b"-", 2)
    assert SEAL.open(b"%s-%x-%s" % (payload, int(ends, 16) + 1, mac), b"", NOW) is None


def test_a_signed_id_is_of_aws_form_and_short_enough_for_the_key():
    sealed = SEAL.sign(ID, b"acme", NOW)
    assert re.fullmatch(rb"[a-zA-Z0-9](-*[a-zA-Z0-9])*", sealed)
    assert len(sealed) == len(ID) + 1 + 8 + 1 + 2 * MAC_BYTES < 256


def test_the_signature_is_part_of_what_is_hashed():
    ring = Ring([(f"r{i}", 1) for i in range(8)], 1600)
    for host in range(8):
        minted = mint(ID, b"acme/", ring, host, finish=lambda tried: SEAL.sign(tried, b"acme", NOW))
        assert minted is not None
        assert ring.owner(b"acme/" + minted) == host
        assert SEAL.open(minted, b"acme", NOW) is not None


def test_its_keys_are_not_in_its_words():
    assert b"new key" not in repr(SEAL).encode()
