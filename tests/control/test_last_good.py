import os

import pytest

from homing.control.last_good import LastGood


@pytest.fixture
def files(tmp_path):
    return LastGood(tmp_path / "state" / "deep")


def test_what_differs_is_written_and_nothing_is_left_beside_it(files):
    assert files.write({"cds.json": b"1", "lds.json": b"2"}) == ("cds.json", "lds.json")
    assert files.write({"cds.json": b"1", "lds.json": b"3"}) == ("lds.json",)
    assert {p.name: p.read_bytes() for p in files.directory.iterdir()} == {"cds.json": b"1", "lds.json": b"3"}


def test_what_an_earlier_run_wrote_is_not_written_again(files):
    files.write({"cds.json": b"1"})
    assert LastGood(files.directory).write({"cds.json": b"1"}) == ()


def test_a_file_is_replaced_and_not_written_into(files):
    """A reader that has the old one open sees the old one whole."""
    files.write({"cds.json": b"old"})
    with (files.directory / "cds.json").open("rb") as reader:
        files.write({"cds.json": b"new and longer"})
        assert reader.read() == b"old"


def test_the_leavings_of_a_crash_are_overwritten(files):
    (files.directory / ".cds.json.tmp").write_bytes(b"half of")
    files.write({"cds.json": b"1"})
    assert os.listdir(files.directory) == ["cds.json"]


def test_a_directory_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        LastGood(tmp_path / "file" / "state")
