"""Who is in the fleet now: the one place that replaces it, and where all others hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from homing.control.latest import Latest
from homing.control.leadership.standing import Role, permitted
from homing.core.config import Address, Config
from homing.core.fleet import (
    DrainChanged,
    Event,
    Fleet,
    LengthTold,
    Pool,
    PoolsReported,
    Replica,
    State,
    TemplateProbed,
)
from homing.core.placement.load import Place
from homing.core.policy import Policy, applied, within
from homing.core.sources import Difference, merge

CONTROL = "control"
"""As a source: what the control service said last, to a picker that has to go on without it."""


@dataclass(frozen=True, slots=True)
class View:
    """The file and the fleet that came of it."""

    config: Config
    fleet: Fleet


class Membership:
    """Owns the fleet of this process. Changed on the loop's thread only, between awaits.

    The fleet is made of what the sources report (`core.sources` says who is believed), without the replicas that were
    drained away, and of what happened to the replicas since (`apply`). Where several control services act as one, it is
    what their leader says, for as long as this one does not decide (`adopt`, `decide`).
    """

    def __init__(self, config: Config, sources: Iterable[str] = ()) -> None:
        """`sources` besides the file, the most trusted first."""
        self._reports: dict[str, dict[str, tuple[Replica, ...]]] = {source: {} for source in sources}
        self._draining: frozenset[Place] = frozenset()
        self._away: frozenset[Place] = frozenset()
        self._merged = merge(config.fleet().pools, {})
        self._written = Fleet(self._merged.pools)
        self.views = Latest(View(config, self._written))
        self.role: Callable[[], Role] = lambda: Role.LEADING
        """What this process may say of the replicas."""
        self._policy = Policy()
        self._adopted: Fleet | None = None
        self._unsaid: dict[tuple[type[Event], str], Event] = {}

    @classmethod
    def following(cls, config: Config, last: Fleet) -> Membership:
        """For a process that knew the fleet from the control service until now: `last` stays as it was, drains too,
        and the file changes only what is changed in it from now on."""
        made = cls(config, (CONTROL,))
        made.go_on(last)
        return made

    def go_on(self, last: Fleet) -> None:
        """As `following`. Raises KeyError where CONTROL was not announced as a source."""
        config = self.view.config
        self._reports[CONTROL] = {pool.id: pool.replicas for pool in last.pools}
        self._draining, self._policy = _draining(last), within(last)
        self._away = frozenset(p for p in places(self._written) - places(last) if last.pool(p[0]) is not None)
        self.views.set(View(config, last))
        self._merge(config)

    @property
    def view(self) -> View:
        return self.views.value

    @property
    def written(self) -> Fleet:
        """Every replica that a source reports, also those drained away, with addresses as the sources have them."""
        return self._written

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What sources say that is not believed."""
        return self._merged.differences

    def source(self, place: Place) -> str:
        """Who is believed about a replica; empty for one that nobody reports."""
        return self._merged.sources.get(place, "")

    def apply(self, *events: Event) -> bool:
        """One new view for all of `events`; none if they change nothing. False if one of them is not for this process
        to say, and was left out."""
        fleet, role, all_said = self.view.fleet, self.role(), True
        for event in events:
            if permitted(role, fleet, event):
                fleet = fleet.apply(event)
            else:
                all_said = False
                if isinstance(event, TemplateProbed | LengthTold):  # nobody says these twice
                    self._unsaid[type(event), event.pool_id] = event
        self._replace(View(self.view.config, fleet))
        return all_said

    def adopt(self, fleet: Fleet) -> None:
        """Another process decides, and says this. Sources and drains are noted, for when it is this one's turn."""
        self._adopted = fleet
        self._merge(self.view.config)

    def decide(self) -> None:
        """From now on this process decides, beginning with what was adopted. All are told, even if nothing changes."""
        self._adopted = None
        self._reports.get(CONTROL, {}).clear()
        unsaid, self._unsaid = tuple(self._unsaid.values()), {}
        self._merge(self.view.config)
        self.apply(*unsaid)
        self.views.set(self.view)

    def configure(self, config: Config) -> None:
        """A new file. Replicas that it keeps keep their state, their health, and what their names resolved to."""
        self._merge(config)

    def report(self, source: str, pool_id: str, replicas: tuple[Replica, ...]) -> None:
        """What one source knows of one pool now. Raises KeyError for a source that was not announced."""
        if self._reports[source].get(pool_id, ()) != replicas:
            self._reports[source][pool_id] = replicas
            self._merge(self.view.config)

    def set_drains(self, draining: frozenset[Place], away: frozenset[Place]) -> None:
        """Who takes no new sessions, and who has left until further notice."""
        if (draining, away) != (self._draining, self._away):
            self._draining, self._away = draining, away
            self._merge(self.view.config)

    def set_policy(self, policy: Policy) -> None:
        """What operators decided."""
        if policy != self._policy:
            self._policy = policy
            self._merge(self.view.config)

    def _merge(self, config: Config) -> None:
        self._merged = merge(config.fleet().pools, self._reports)
        engines = {pool.id: pool.engine for pool in config.pools}
        before, self._written = (
            self._written,
            Fleet(
                tuple(replace(p, replicas=tuple(map(engines[p.id].secured, p.replicas))) for p in self._merged.pools)
            ),
        )
        if self._adopted is not None:
            mine = {pool.id for pool in config.pools}  # how to serve others is not in this file
            adopted = Fleet(tuple(p for p in self._adopted.pools if p.id in mine))
            self._replace(View(config, applied(self._policy, adopted)))  # it may be that only this process knows it
            return
        here = (
            replace(p, replicas=tuple(r for r in p.replicas if (p.id, r.id) not in self._away))
            for p in self._written.pools
        )
        known = tuple(_with_known_address(pool, before, self.view.fleet) for pool in here)
        fleet = self.view.fleet.apply(PoolsReported(known))
        for place in sorted(_draining(fleet) ^ (self._draining & places(fleet))):
            fleet = fleet.apply(DrainChanged(*place, draining=place in self._draining))
        self._replace(View(config, applied(self._policy, fleet)))

    def _replace(self, view: View) -> None:
        if view != self.view:
            self.views.set(view)


def places(fleet: Fleet) -> frozenset[Place]:
    """Every replica of `fleet`."""
    return frozenset((pool.id, r.id) for pool in fleet.pools for r in pool.replicas)


def _draining(fleet: Fleet) -> frozenset[Place]:
    return frozenset((pool.id, r.id) for pool in fleet.pools for r in pool.replicas if r.state is State.DRAINING)


def _with_known_address(pool: Pool, before: Fleet, fleet: Fleet) -> Pool:
    """A name that is written as before keeps what it resolved to."""
    written, resolved = before.pool(pool.id), fleet.pool(pool.id)
    if written is None or resolved is None:
        return pool

    def known(replica: Replica) -> Replica:
        old, now = written.replica(replica.id), resolved.replica(replica.id)
        if old is None or now is None or old.address != replica.address or Address.parse(replica.address).ip:
            return replica
        return replace(replica, address=now.address)

    return replace(pool, replicas=tuple(map(known, pool.replicas)))
