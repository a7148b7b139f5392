"""Whether the picker can decide, by the names that gRPC's health service knows (doc/health-checking.md)."""

from __future__ import annotations

from collections.abc import Callable

from homing.ext_proc.transport import LIVENESS, READINESS

Told = Callable[[bool | None], None]


class Health:
    """Not ready until `set_serving` says so."""

    __slots__ = ("_serving", "_watchers")

    def __init__(self) -> None:
        self._serving = {LIVENESS: True} | dict.fromkeys(READINESS, False)
        self._watchers: set[tuple[str, Told]] = set()

    def serving(self, name: str) -> bool | None:
        """None for an unknown name."""
        return self._serving.get(name)

    def set_serving(self, serving: bool) -> None:
        changed = {name for name in READINESS if self._serving[name] is not serving}
        self._serving |= dict.fromkeys(READINESS, serving)
        for name, told in tuple(self._watchers):
            if name in changed:
                told(serving)

    def watch(self, name: str, told: Told) -> Callable[[], None]:
        """Calls `told` now and at every change, until the function that is returned is called."""
        watcher = (name, told)
        self._watchers.add(watcher)
        told(self.serving(name))
        return lambda: self._watchers.discard(watcher)
