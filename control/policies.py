"""The policy in force, and those before it: each change is kept, and any of them can be had again.

A change that cannot be kept is refused, but for the kill switch: that one holds here at once, is said to be held here
alone, and becomes a policy like the others as soon as it can be kept. Where several control services held different
words of it meanwhile, or somebody else has made a policy, the one that was said last is in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from homing.control.membership import Membership
from homing.core.policy import Policy, PolicyDifference, PoolPolicy, differences

log = logging.getLogger(__name__)

MAX_KEPT = 50
NONE = Policy()
"""Before the first."""
TOLD_LAST = "the fleet that was told last"


class ConflictError(Exception):
    """Another policy came in between."""


class UnknownVersionError(Exception):
    """It is not kept."""


@dataclass(frozen=True, slots=True)
class Content:
    """What somebody wants to hold from now on."""

    bypass: bool
    pools: Mapping[str, PoolPolicy]


@dataclass(frozen=True, slots=True)
class Unkept:
    """The kill switch as it was said while it could not be kept. `version`: of the policy in force then."""

    bypass: bool
    who: str
    at_s: float
    version: int

    def is_settled_by(self, later: Policy) -> bool:
        """Whether nothing needs to be said any more, since somebody else has made that policy."""
        return later.at_s >= self.at_s or (self.who == TOLD_LAST and self.bypass == later.bypass)


class Store(Protocol):
    """Where policies survive a restart. Raises OSError; False: there is one of that version already."""

    async def put_policy(self, policy: Policy) -> bool: ...


class Policies:
    """Owns them, and tells the membership. On the loop's thread only."""

    def __init__(self, membership: Membership, store: Store, now_s: Callable[[], float]) -> None:
        self._membership = membership
        self._store = store
        self._now_s = now_s
        self._kept: dict[int, Policy] = {}
        self._before = NONE
        self._unkept: Unkept | None = None

    @property
    def now(self) -> Policy:
        said, kept = self._unkept, self._newest
        return kept if said is None else replace(kept, bypass=said.bypass, who=said.who, at_s=said.at_s)

    @property
    def is_kept(self) -> bool:
        """False while the kill switch is held here alone."""
        return self._unkept is None

    @property
    def _newest(self) -> Policy:
        return self._kept[max(self._kept)] if self._kept else self._before

    @property
    def all(self) -> tuple[Policy, ...]:
        """The newest first."""
        return tuple(self._kept[version] for version in sorted(self._kept, reverse=True))

    @property
    def differences(self) -> tuple[PolicyDifference, ...]:
        """What of it does not hold."""
        modes = {pool.id: pool.mode for pool in self._membership.view.config.pools}
        return tuple(differences(self.now, modes, self._membership.written))

    def restore(self, policies: Iterable[Policy]) -> None:
        """What an earlier process knew, or another one."""
        newest = sorted(policies, key=lambda policy: policy.version)[-MAX_KEPT:]
        self._kept, self._before = {policy.version: policy for policy in newest}, NONE
        said, kept = self._unkept, self._newest
        if said is not None and kept.version > said.version and said.is_settled_by(kept):
            self._unkept = None
        self._membership.set_policy(self.now)

    def go_on(self, policy: Policy, at_s: float) -> None:
        """As it was told at that time, where those that are kept cannot be had. The kill switch may be none of them."""
        self._before = replace(policy, bypass=False)
        if policy.bypass:
            self._unkept = Unkept(True, TOLD_LAST, at_s, NONE.version)

    async def put(self, content: Content, who: str, expected: int | None = None) -> Policy:
        """Raises ConflictError when the one in force is not `expected`, or another one wrote at the same time; and
        OSError when it cannot be kept, unless it is the kill switch, which holds all the same."""
        before = self.now
        if expected is not None and expected != before.version:
            raise ConflictError
        pools = {pool_id: said for pool_id, said in content.pools.items() if not said.empty}
        policy = Policy(before.version + 1, self._now_s(), who, content.bypass, pools)
        try:
            kept = await self._store.put_policy(policy)
        except OSError as error:
            if not self.is_kill_switch(content):
                raise
            log.error("the kill switch holds here alone, until it can be kept: %s", error)
            self._unkept = Unkept(content.bypass, who, policy.at_s, self._newest.version)
            self._membership.set_policy(self.now)
            return self.now
        if not kept:
            raise ConflictError
        self._unkept = None
        self.restore((*self._kept.values(), policy))
        log.warning("policy %d by %s: bypass %s, %s", policy.version, who, "on" if policy.bypass else "off", pools)
        return policy

    def is_kill_switch(self, content: Content) -> bool:
        """Whether it says nothing else than the policy in force but how bypass is to be."""
        return {pool_id: said for pool_id, said in content.pools.items() if not said.empty} == dict(self.now.pools)

    async def catch_up(self) -> None:
        """Keeps what could not be kept. Raises OSError while it still cannot."""
        said, newest = self._unkept, self._newest
        if said is None:
            return
        policy = Policy(newest.version + 1, said.at_s, said.who, said.bypass, newest.pools)
        if await self._store.put_policy(policy) and self._unkept is said:  # else another is to be read first
            self._unkept = None
            self.restore((*self._kept.values(), policy))
            log.warning(
                "policy %d by %s is kept now: bypass %s", policy.version, said.who, "on" if said.bypass else "off"
            )

    async def rollback(self, who: str, version: int | None = None) -> Policy:
        """The content of an earlier one (the last but one) as a new one. Raises UnknownVersionError, ConflictError."""
        wanted = self.now.version - 1 if version is None else version
        before = NONE if wanted == 0 else self._kept.get(wanted)
        if before is None or wanted < 0:
            raise UnknownVersionError(wanted)
        return await self.put(Content(before.bypass, before.pools), who, self.now.version)
