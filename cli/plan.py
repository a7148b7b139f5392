"""`homing plan`: what a change would move, before anything is pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.config_file import load

if TYPE_CHECKING:
    from homing.core.config import Config
    from homing.core.plan import Changes, PoolPlan

PLACE = "[POOL/]ID"


@click.command("plan")
@api_options
@click.option("--add", "added", multiple=True, metavar="[POOL/]ID=HOST:PORT", help="A replica more.")
@click.option("--remove", "removed", multiple=True, metavar=PLACE, help="A replica less, at once.")
@click.option("--drain", "drained", multiple=True, metavar=PLACE, help="A replica that drains.")
@click.option("--offline", is_flag=True, help="By the file alone: the share of the hash, no sessions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    config_path: str,
    api: ApiPlace,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    drained: tuple[str, ...],
    offline: bool,
    as_json: bool,
) -> None:
    """Say how many sessions and which share of the hash a change would move. Nothing is changed.

    POOL may be left out where the file has only one. Options may be given several times: all changes together.
    """
    if not (added or removed or drained):
        raise click.UsageError("say what is to change: --add, --remove or --drain")
    import msgspec

    config = load(config_path)
    changes = _changes(config, added, removed, drained)
    pools = _offline(config, changes) if offline else _asked(Api.at(config_path, api), changes)
    click.echo(msgspec.json.encode({"pools": pools}).decode() if as_json else "\n".join(map(in_words, pools)))


def in_words(plan: PoolPlan) -> str:
    lines = [
        f"pool {plan.pool}: {_sessions(plan)}",
        f"  without a picker {plan.hash_moved:.1%} of the sessions would move by the hash"
        f" (no hash can do with less than {plan.hash_least:.1%})",
    ]
    width = max(len(share.replica) for share in plan.shares)
    lines += [f"  {s.replica.ljust(width)}  {s.before:6.1%} -> {s.after:6.1%} of the hash" for s in plan.shares]
    return "\n".join(lines)


def _sessions(plan: PoolPlan) -> str:
    if plan.sessions is None:
        return "no picker says how many sessions there are"
    draining = f", {plan.sessions_draining} end where they are" if plan.sessions_draining else ""
    return f"{plan.sessions_moved} of {plan.sessions} sessions move{draining}"


def _changes(config: Config, added: tuple[str, ...], removed: tuple[str, ...], drained: tuple[str, ...]) -> Changes:
    from homing.core.fleet import Replica
    from homing.core.plan import Changes

    def place(text: str) -> tuple[str, str]:
        pool, slash, replica_id = text.rpartition("/")
        if slash:
            return pool, replica_id
        if len(config.pools) > 1:
            pools = ", ".join(pool.id for pool in config.pools)
            raise click.UsageError(f"{text}: in which pool? Say POOL/{replica_id}; pools: {pools}")
        return config.pools[0].id, replica_id

    def addition(text: str) -> tuple[str, Replica]:
        name, equals, address = text.partition("=")
        if not equals or not name or not address:
            raise click.UsageError(f"--add {text}: give [POOL/]ID=HOST:PORT")
        pool, replica_id = place(name)
        return pool, Replica(replica_id, address)

    return Changes(tuple(map(addition, added)), tuple(map(place, removed)), tuple(map(place, drained)))


def _offline(config: Config, changes: Changes) -> tuple[PoolPlan, ...]:
    """As if every replica of the file were well."""
    from dataclasses import replace

    from homing.core.fleet import Fleet, State
    from homing.core.plan import UnplannableError, plan

    pools = (
        replace(p, replicas=tuple(replace(r, healthy=True, state=State.READY) for r in p.replicas))
        for p in config.fleet().pools
    )
    try:
        return plan(Fleet(tuple(pools)), changes, None)
    except UnplannableError as error:
        raise click.ClickException(str(error)) from None


def _asked(api: Api, changes: Changes) -> tuple[PoolPlan, ...]:
    import msgspec

    from homing.core.plan import PoolPlan

    body = {
        "add": [{"pool": pool, "id": r.id, "address": r.address, "weight": r.weight} for pool, r in changes.add],
        "remove": [{"pool": pool, "id": replica_id} for pool, replica_id in changes.remove],
        "drain": [{"pool": pool, "id": replica_id} for pool, replica_id in changes.drain],
    }
    answer = api.call("POST", "/api/plan", dict[str, tuple[PoolPlan, ...]], body=msgspec.json.encode(body))
    return answer["pools"]
