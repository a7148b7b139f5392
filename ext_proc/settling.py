"""The usual request, most often the next turn of a session that goes home, without a step that it does not need.

What else there is to a request (an id to prove, a response, a hop before us that chooses) is for the picker's own steps
to find out: `usual` only has to see that there is nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable

from homing.core import responses
from homing.core.placement.decision import Reason
from homing.core.placement.home import Placer
from homing.core.placement.pools import CompiledPool
from homing.core.session import KEY_ID_BYTES, SessionKey
from homing.ext_proc.counts import Counts
from homing.ext_proc.events import Headers, RequestHeadersReceived
from homing.ext_proc.identity import COOKIE
from homing.ext_proc.learning import LEARN
from homing.ext_proc.routed import Settled

UNUSUAL = frozenset({"x-session-close", "x-homing-odd", "x-homing-expires", LEARN, COOKIE})
"""Headers that ask for more than a place."""


class Settling:
    """`pools`: whose usual requests it may settle, since no body is changed there, nobody is refused, and ids are what
    they say. `key`: the session that headers name."""

    __slots__ = ("_clock", "_counts", "_key", "_placer", "pools")

    def __init__(
        self, placer: Placer, key: Callable[[Headers], SessionKey], counts: Counts, clock: Callable[[], float]
    ) -> None:
        self._placer = placer
        self._key = key
        self._counts = counts
        self._clock = clock
        self.pools: frozenset[str] = frozenset()

    def usual(self, request: RequestHeadersReceived, pool: CompiledPool) -> SessionKey | None:
        """The session, whether the client has named it or Envoy; None where there may be more to the request."""
        headers = request.headers
        if (
            pool.pool.id not in self.pools
            or request.subset is not None
            or not UNUSUAL.isdisjoint(headers)
            or request.model in pool.unusual
            or responses.PATH in headers.get(":path", b"")
        ):
            return None
        key = self._key(headers)
        return key if key.session.isascii() and 0 < len(key.session) <= KEY_ID_BYTES else None

    def settle(self, pool: CompiledPool, key: SessionKey, size_bytes: int) -> Settled | None:
        """A usual request of a session that the client has named. None, and nothing has changed, where it is better
        weighed whether it stays at home."""
        decision = self._placer.staying.begin(pool, key, size_bytes, self._clock())
        if decision is None:
            return None
        self._counts.decisions[pool.pool.id, Reason.HOME] += 1
        return Settled(self._placer.load, decision)


def length(headers: Headers) -> int:
    """Bytes of the body; 0 where nobody says."""
    told = headers.get("content-length", b"")
    return int(told) if told.isdigit() and len(told) < 12 else 0
