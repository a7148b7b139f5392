"""Who is in the fleet now: the one place that replaces it, and where all others hear of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from homing.control.latest import Latest
from homing.core.config import Config
from homing.core.fleet import Event, Fleet, Pool, PoolsReported, Replica


@dataclass(frozen=True, slots=True)
class View:
    """The file and the fleet that came of it."""

    config: Config
    fleet: Fleet


class Membership:
    """Owns the fleet of this process. Changed on the loop's thread only, between awaits."""

    def __init__(self, config: Config) -> None:
        self.views = Latest(View(config, config.fleet()))

    @property
    def view(self) -> View:
        return self.views.value

    def apply(self, *events: Event) -> None:
        """One new view for all of `events`; none if they change nothing."""
        fleet = self.view.fleet
        for event in events:
            fleet = fleet.apply(event)
        self._replace(View(self.view.config, fleet))

    def configure(self, config: Config) -> None:
        """A new file. Replicas that it keeps keep their state, their health, and what their names resolved to."""
        pools = _with_known_addresses(config, self.view)
        self._replace(View(config, self.view.fleet.apply(PoolsReported(pools))))

    def _replace(self, view: View) -> None:
        if view != self.view:
            self.views.set(view)


def _with_known_addresses(config: Config, before: View) -> tuple[Pool, ...]:
    written = {(pool.id, r.id): r.address for pool in before.config.pools for r in pool.replicas}
    names = {
        (pool.id, r.id)
        for pool in config.pools
        for r in pool.replicas
        if r.address.ip is None and written.get((pool.id, r.id)) == r.address
    }

    def known(pool: Pool) -> Iterable[Replica]:
        old = before.fleet.pool(pool.id)
        for replica in pool.replicas:
            resolved = old.replica(replica.id) if old is not None and (pool.id, replica.id) in names else None
            yield replica if resolved is None else replace(replica, address=resolved.address)

    return tuple(replace(pool, replicas=tuple(known(pool))) for pool in config.fleet().pools)
