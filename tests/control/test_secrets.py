"""Secrets are read from where the file says, and nothing says them again."""

from pathlib import Path

import pytest

from homing.control.secrets import MAX_BYTES, SecretError, resolve
from homing.core.config.secret import SecretRef

KEY = SecretRef("env", "KEY")


def test_a_variable_without_the_blanks_around_it(tmp_path: Path):
    assert resolve(KEY, tmp_path / "homing.yaml", {"KEY": " s3cret\n"}) == b"s3cret"


def test_a_file_beside_the_one_that_names_it_or_anywhere(tmp_path: Path):
    (tmp_path / "key").write_bytes(b"s3cret\xff\n")
    (tmp_path / "conf").mkdir()
    for name in ("../key", str(tmp_path / "key")):
        assert resolve(SecretRef("file", name), tmp_path / "conf" / "homing.yaml", {}) == b"s3cret\xff"


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        (SecretRef("env", "OTHER"), "env:OTHER: the variable is not set"),
        (SecretRef("env", "BLANK"), "env:BLANK: shorter than 8 bytes"),
        (SecretRef("env", "KEY"), "env:KEY: shorter than 8 bytes"),
        (SecretRef("file", "none"), "file:none: no such file or directory"),
        (SecretRef("file", "."), "file:.: is a directory"),
        (SecretRef("file", "long"), f"file:long: longer than {MAX_BYTES} bytes"),
    ],
)
def test_one_that_cannot_be_had_is_told_by_its_place(tmp_path: Path, ref: SecretRef, said: str):
    (tmp_path / "long").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(SecretError) as caught:
        resolve(ref, tmp_path / "homing.yaml", {"KEY": "s3cret", "BLANK": " "}, min_bytes=8)
    assert str(caught.value) == said
