import asyncio
import logging

import pytest

from homing.ext_proc import kept
from homing.ext_proc.kept import kept as keep


async def test_work_that_fails_begins_again_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(kept, "PAUSE_S", 0.0)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ValueError("unforeseen")

    with caplog.at_level(logging.ERROR):
        await keep(work, "testing")
    assert begun == 3
    assert [r.getMessage() for r in caplog.records] == ["testing failed, and goes on in 0 s"] * 2


async def test_cancelled_it_ends():
    task = asyncio.create_task(keep(asyncio.Event().wait, "waiting"))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
