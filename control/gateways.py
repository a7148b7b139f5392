"""Several gateways that share no pins: said once, since nothing else shows it until sessions lose their homes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from homing.core.config import Config

LOOK_S = 5.0

log = logging.getLogger(__name__)


async def warn_of_pins_apart(envoys: Callable[[], int], config: Callable[[], Config], look_s: float = LOOK_S) -> None:
    """Looks until it has warned. `envoys`: how many are connected now; `config`: the newest.

    Twice in a row, since an Envoy that connects again is there twice for a moment.
    """
    before = False
    while True:
        await asyncio.sleep(look_s)
        apart = envoys() > 1 and config().sessions.pins == "memory"
        if apart and before:
            log.warning(
                "%d Envoys are connected and sessions.pins is memory: where they have pickers of their own, a session"
                " that comes to another gateway loses its pin and goes where its hash says (docs/sharing.md)",
                envoys(),
            )
            return
        before = apart
