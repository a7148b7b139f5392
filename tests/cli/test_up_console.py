"""What `homing up` writes, and that nobody has to read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homing.cli.console import ERASE_LINE, Console

Files = tuple[int, int, Path, Path]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    out, err = tmp_path / "out", tmp_path / "err"
    descriptors = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in (out, err)]
    yield descriptors[0], descriptors[1], out, err
    for descriptor in descriptors:
        os.close(descriptor)


def test_lines_go_where_they_belong(files: Files) -> None:
    out, err, out_file, err_file = files
    console = Console(out, err, live=False)
    console.say("picker-0 ended")
    console.child_line("envoy", "started")
    console.show("homing is ready")
    console.close()
    assert out_file.read_text() == "homing is ready\n"
    assert err_file.read_text() == "homing: picker-0 ended\nenvoy | started\n"


def test_progress_is_one_line_that_others_push_down(files: Files) -> None:
    out, err, out_file, err_file = files
    console = Console(out, err, live=True)
    console.progress(1, 3, ["control", "envoy"])
    console.child_line("control", "hello")
    console.progress_done()
    console.show("homing is ready")
    console.close()
    line = "starting: 1 of 3 ready; waiting for control, envoy"
    assert err_file.read_bytes().decode() == f"{line}{ERASE_LINE}control | hello\n{line}{ERASE_LINE}"
    assert out_file.read_text() == "homing is ready\n"


def test_progress_names_a_few_of_many(files: Files) -> None:
    out, err, _, err_file = files
    console = Console(out, err, live=True)
    console.progress(0, 104, [f"demo/sim-{i}" for i in range(100)])
    console.close()
    names = "demo/sim-0, demo/sim-1, demo/sim-2, demo/sim-3"
    assert err_file.read_text() == f"starting: 0 of 104 ready; waiting for {names} and 96 more"


def test_without_a_terminal_there_is_no_progress(files: Files) -> None:
    out, err, _, err_file = files
    console = Console(out, err, live=False)
    console.progress(1, 3, ["control"])
    console.progress_done()
    console.close()
    assert err_file.read_text() == ""


def test_a_closed_stream_does_not_stop_the_other(files: Files) -> None:
    _, err, _, err_file = files
    read, write = os.pipe()
    os.close(read)
    console = Console(write, err, live=False)
    console.show("nobody reads this")
    console.say("still here")
    console.close()
    os.close(write)
    assert err_file.read_text() == "homing: still here\n"


def full_pipe(out: int) -> tuple[Console, int, int]:
    """A console whose reader has read nothing of far more than pipe and queue hold; the pipe's two ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    console = Console(out, write, live=False, lines_max=5)
    for _ in range(1000):
        console.child_line("envoy", "x" * 100_000)
    return console, read, write


def drain(read: int, until: bytes, between: Callable[[], None]) -> bytes:
    text = b""
    deadline = time.monotonic() + 10
    while until not in text and time.monotonic() < deadline:
        try:
            text += os.read(read, 65536)
        except BlockingIOError:
            between()
            time.sleep(0.01)
    return text


def test_a_reader_that_does_not_read_hears_later_what_it_missed(files: Files) -> None:
    console, read, write = full_pipe(files[0])
    missed = b" lines dropped: nobody read them\n"
    assert missed in drain(read, missed, lambda: console.say("anything"))
    console.close()
    os.close(read)
    os.close(write)


def test_a_reader_that_does_not_read_does_not_hold_up_the_end(files: Files) -> None:
    console, read, _ = full_pipe(files[0])
    began = time.monotonic()
    console.close(timeout_s=0.05)
    assert time.monotonic() - began < 5
    os.close(read)  # ends the writer's wait, and so its thread
