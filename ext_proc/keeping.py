"""The store of sessions' system texts: where `sessions.pins` is in Redis, and lost texts are looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from homing.core.config import Config
from homing.ext_proc.picker import Picker
from homing.ext_proc.pins.counts import Read
from homing.ext_proc.pins.secret import SharedSecret
from homing.ext_proc.pins.sharing import SharingError, pins_url

if TYPE_CHECKING:
    from homing.ext_proc.texts import TextStore


def text_store(
    config: Config, file: Path, picker: Picker, secret: SharedSecret, clock: Callable[[], float]
) -> TextStore | None:
    """None where texts stay in memory. Raises SharingError."""
    url = pins_url(config.sessions, file)
    if url is None or all(pool.repair.lost_system == "off" for pool in config.pools):
        return None
    try:
        from homing.ext_proc.pins.redis_url import RedisUrlError, client
        from homing.ext_proc.texts import TextStore
    except ImportError as error:
        why = f"the package {error.name} is not there: pip install 'homing[redis]'"
        raise SharingError(f"repair.lost_system with sessions.pins in Redis: {why}") from None

    def count(outcome: Read) -> None:
        picker.counts.texts_read[outcome] += 1

    try:
        clients = client(url), client(url)
    except RedisUrlError as error:
        raise SharingError(f"sessions.pins: {error}") from None
    store = TextStore(*clients, picker.bodies.sessions, secret.texts(), secret.namespace(), clock, count)
    picker.bodies.first_sight = store.read
    return store
