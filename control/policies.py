"""The policy in force, and those before it: each change is kept, and any of them can be had again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from homing.control.membership import Membership
from homing.core.policy import Policy, PolicyDifference, PoolPolicy, differences

log = logging.getLogger(__name__)

MAX_KEPT = 50
NONE = Policy()
"""Before the first."""


class ConflictError(Exception):
    """Another policy came in between."""


class UnknownVersionError(Exception):
    """It is not kept."""


@dataclass(frozen=True, slots=True)
class Content:
    """What somebody wants to hold from now on."""

    bypass: bool
    pools: Mapping[str, PoolPolicy]


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

    @property
    def now(self) -> Policy:
        return self._kept[max(self._kept)] if self._kept else NONE

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
        self._kept = {policy.version: policy for policy in newest}
        self._membership.set_policy(self.now)

    async def put(self, content: Content, who: str, expected: int | None = None) -> Policy:
        """Raises ConflictError when the one in force is not `expected`, or another one wrote at the same time."""
        before = self.now
        if expected is not None and expected != before.version:
            raise ConflictError
        pools = {pool_id: said for pool_id, said in content.pools.items() if not said.empty}
        policy = Policy(before.version + 1, self._now_s(), who, content.bypass, pools)
        if not await self._store.put_policy(policy):
            raise ConflictError
        self.restore((*self._kept.values(), policy))
        log.warning("policy %d by %s: bypass %s, %s", policy.version, who, "on" if policy.bypass else "off", pools)
        return policy

    async def rollback(self, who: str, version: int | None = None) -> Policy:
        """The content of an earlier one (the last but one) as a new one. Raises UnknownVersionError, ConflictError."""
        wanted = self.now.version - 1 if version is None else version
        before = NONE if wanted == 0 else self._kept.get(wanted)
        if before is None or wanted < 0:
            raise UnknownVersionError(wanted)
        return await self.put(Content(before.bypass, before.pools), who, self.now.version)
