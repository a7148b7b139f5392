"""How a control service finds the others: the store that its file names."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from homing.control.secrets import SecretError, resolve
from homing.control.state import StateError
from homing.core.config import Config

if TYPE_CHECKING:
    from homing.control.leadership.lease import Lease
    from homing.control.leadership.shared_state import SharedState


@dataclass(frozen=True, slots=True)
class Shared:
    """`name`: this process's among the others."""

    name: str
    state: SharedState
    lease: Lease


def shared(config: Config, file: Path, environment: Mapping[str, str] = os.environ) -> Shared | None:
    """Connects to nobody yet. None where the state is this service's own. Raises StateError."""
    url = _url(config, file, environment)
    if url is None:
        return None
    try:
        from homing.control.leadership.lease import Lease
        from homing.control.leadership.shared_state import SharedState
        from homing.ext_proc.pins.redis_url import RedisUrlError, server
    except ImportError:
        raise StateError("control.state: the package redis is not there: pip install 'homing[redis]'") from None
    prefix = f"homing:{config.control.name}:control:"
    name = f"{socket.gethostname()}:{config.api.port}-{secrets.token_hex(3)}"
    try:
        return Shared(name, SharedState(server(url), prefix), Lease(server(url), prefix))
    except RedisUrlError as error:
        raise StateError(f"control.state: {error}") from None


def _url(config: Config, file: Path, environment: Mapping[str, str]) -> str | None:
    where = config.control.state
    if isinstance(where, str):
        return None if where == "local" else where
    try:
        return resolve(where, file, environment).decode()
    except (SecretError, UnicodeDecodeError) as error:
        raise StateError(f"control.state: {error}") from None
