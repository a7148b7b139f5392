"""The kind of keys that point to a secret."""

import pytest

from homing.core.config.kinds import Secret
from homing.core.config.secret import NotShownError, SecretRef


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("env:HOMING_SECRET", SecretRef("env", "HOMING_SECRET")),
        ("file:/run/secrets/key", SecretRef("file", "/run/secrets/key")),
        ("file:key", SecretRef("file", "key")),
    ],
)
def test_a_place_is_read_and_written_alike(text: str, ref: SecretRef):
    assert Secret()(text) == ref
    assert str(ref) == text
    assert Secret()(ref) == ref


@pytest.mark.parametrize(
    "value", ["s3cret", "", "env:", "env:A B", "env:1A", "file:", "file:a\0b", "https:x", 7, None, []]
)
def test_what_is_no_place_is_refused_and_not_repeated(value: object):
    with pytest.raises(NotShownError) as caught:
        Secret()(value)
    assert str(caught.value) == "env:NAME or file:PATH (the place of the secret, not the secret)"
