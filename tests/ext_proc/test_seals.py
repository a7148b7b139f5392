"""Seals are made of the file and of keys that stand elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.control.secrets import SecretError
from homing.core.config import parse
from homing.ext_proc.identity import NO_SEALS, Seals
from homing.ext_proc.seals import seals

POOLS = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"
KEYS = {"A": "a" * 16, "B": "b" * 16, "SHORT": "c" * 15}


def made(sessions: str) -> Seals:
    return seals(parse(f"{POOLS}sessions: {{{sessions}}}\n", "f"), Path("homing.yaml"), KEYS)


def test_without_a_word_of_it_nothing_is_sealed():
    assert made("max: 1") == NO_SEALS


def test_each_has_its_keys_lifetime_and_purpose():
    both = made("cookie: {secret: 'env:A', max_age_s: 60}, signed: {keys: ['env:B', 'env:A']}")
    assert both.cookie is not None
    assert both.signed is not None
    assert (both.cookie.purpose, both.cookie.lifetime_s) == (b"cookie", 60.0)
    assert (both.signed.purpose, both.signed.lifetime_s) == (b"session", 86_400.0)
    assert both.signed.keys[1:] == both.cookie.keys
    assert both.signed.open(both.signed.sign(b"id", b"", 0.0), b"", 0.0) is not None


@pytest.mark.parametrize("key", ["env:NONE", "env:SHORT", "file:none"])
def test_a_key_that_cannot_be_had_or_is_short_is_an_error(key: str):
    with pytest.raises(SecretError, match=key):
        made(f"signed: {{keys: ['env:A', '{key}']}}")
