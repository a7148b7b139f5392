"""The policy, as the API tells it and as the commands show it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from homing.cli.api_client import Api

HERE_ALONE = (
    "  HELD HERE ALONE: it cannot be kept now, and no other control service hears of it before it can be."
    " Say it to each: homing bypass {state} --api URL"
)


class PoolPolicy(msgspec.Struct):
    mode: str | None = None
    shares: dict[str, float] = {}


class Policy(msgspec.Struct):
    version: int
    at_s: float
    who: str
    bypass: bool
    pools: dict[str, PoolPolicy]


class Difference(msgspec.Struct):
    pool: str
    policy: str
    holds: str


class Policies(msgspec.Struct):
    """`kept`: false while the kill switch holds at the control service that was asked, and nowhere else."""

    now: Policy
    differences: list[Difference]
    earlier: list[Policy]
    kept: bool = True


def put(api: Api, before: Policy, *, bypass: bool, pools: dict[str, PoolPolicy]) -> Policies:
    """Only if nobody has changed it since."""
    wanted = {"bypass": bypass, "pools": pools, "if_version": before.version}
    return api.call("PUT", "/api/policy", Policies, msgspec.json.encode(wanted))


def in_words(policies: Policies) -> str:
    now = policies.now
    lines = [headline(now)]
    if now.bypass:
        lines.append("  bypass is on: every pool is off, as if homing were not there")
    if not policies.kept:
        lines.append(HERE_ALONE.format(state="on" if now.bypass else "off"))
    for pool, said in sorted(now.pools.items()):
        shares = [
            f"{replica} {share:.0%} of the new sessions at most" for replica, share in sorted(said.shares.items())
        ]
        parts = ([f"mode {said.mode} at most"] if said.mode else []) + shares
        lines.append(f"  pool {pool}: {', '.join(parts)}")
    if not now.bypass and not now.pools:
        lines.append("  nothing: all is as the file says")
    lines += [f"  pool {d.pool}: {d.policy} does not hold: {d.holds}" for d in policies.differences]
    lines += [headline(earlier) for earlier in policies.earlier[:5]]
    return "\n".join(lines)


def headline(policy: Policy) -> str:
    if policy.version == 0:
        return "policy 0"
    when = datetime.fromtimestamp(policy.at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"policy {policy.version} of {when} by {policy.who}"
