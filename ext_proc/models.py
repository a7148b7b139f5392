"""`model: auto`: the model that a session is held with (`core.context.preferred`)."""

from __future__ import annotations

from collections.abc import Callable

from homing.core.config import Config
from homing.core.config.models import Auto
from homing.core.context.preferred import Preferred
from homing.core.placement.pools import CompiledFleet, CompiledPool
from homing.core.session import SessionKey
from homing.ext_proc.events import RequestHeadersReceived


class Models:
    """Nothing is remembered while the file has no `auto`."""

    def __init__(self, secret: bytes, clock: Callable[[], float]) -> None:
        self._secret = secret
        self._clock = clock
        self._auto: Auto | None = None
        self.preferred = Preferred()

    def configure(self, config: Config) -> None:
        self._auto = config.auto
        self.preferred.limit(config.sessions.ttl_s, config.sessions.max)

    @property
    def chooses(self) -> bool:
        """Whether the file has an `auto`."""
        return self._auto is not None

    def asked(self, request: RequestHeadersReceived) -> Auto | None:
        """The file's `auto`, if the request leaves the choice to it. Envoy writes the default's name into most bodies
        before it asks, and says so."""
        auto = self._auto
        if auto is None or ("x-homing-auto" not in request.headers and request.model != auto.model):
            return None
        return auto

    def held(self, routed: CompiledPool, fleet: CompiledFleet, key: SessionKey, auto: Auto) -> CompiledPool:
        """The session's own pool; the one that Envoy's route leads to where it has none, or that one is down."""
        pool_id = self.preferred.get(self._digest(key), self._clock())
        own = fleet.by_id.get(pool_id) if pool_id in auto.pools and pool_id is not None else None
        return own if own is not None and own.members else routed

    def note(self, pool: CompiledPool, key: SessionKey) -> None:
        """The session has a request for this pool."""
        if self._auto is not None and pool.pool.id in self._auto.pools:
            self.preferred.note(self._digest(key), pool.pool.id, self._clock())

    def forget(self, key: SessionKey) -> None:
        self.preferred.forget(self._digest(key))

    def _digest(self, key: SessionKey) -> bytes:
        return key.digest("", self._secret)
