"""Work beside the requests that must not end the picker, whatever goes wrong in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

PAUSE_S = 1.0

log = logging.getLogger(__name__)


async def kept(work: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
    """Until the work ends by itself, or is cancelled; begun again after a failure, which is logged as `what`'s."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception("%s failed, and goes on in %g s", what, PAUSE_S)
            await asyncio.sleep(PAUSE_S)
