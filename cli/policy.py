"""`homing policy`: what operators decide at run time, below what the file allows."""

from __future__ import annotations

import click
import msgspec

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.policy_view import Policies, PoolPolicy, in_words, put

FILE = "file"


@click.group("policy")
def command() -> None:
    """Show, set and roll back the policy: how far homing goes for a pool, and who gets few new sessions."""


@command.command("show")
@api_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(config_path: str, api: ApiPlace, as_json: bool) -> None:
    """Show the policy in force, what of it does not hold, and those before it."""
    _show(Api.at(config_path, api).call("GET", "/api/policy", Policies), as_json)


@command.command("set")
@api_options
@click.argument("pool")
@click.option("--mode", type=click.Choice(["off", "observe", "route", "full", FILE]), help="At most; file: no limit.")
@click.option("--share", "shares", multiple=True, metavar="ID=SHARE", help="0 to 1 of the new sessions; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def set_(config_path: str, api: ApiPlace, pool: str, mode: str | None, shares: tuple[str, ...], as_json: bool) -> None:
    """Change the policy of POOL; what is not named stays.

    --share gpu-c=0.05 lets a new replica take one of twenty new sessions, 1 as many as it likes.
    """
    if mode is None and not shares:
        raise click.UsageError("nothing to set: --mode or --share")
    wanted = dict(map(_share, shares))
    asked = Api.at(config_path, api)
    now = asked.call("GET", "/api/policy", Policies).now
    before = now.pools.get(pool, PoolPolicy())
    after = PoolPolicy(
        before.mode if mode is None else None if mode == FILE else mode,
        {replica: share for replica, share in (before.shares | wanted).items() if share < 1},
    )
    _show(put(asked, now, bypass=now.bypass, pools=now.pools | {pool: after}), as_json)


@command.command("rollback")
@api_options
@click.argument("version", type=click.IntRange(0), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rollback(config_path: str, api: ApiPlace, version: int | None, as_json: bool) -> None:
    """Have an earlier policy again: VERSION, or the one before the last. 0 is none at all."""
    asked, path = Api.at(config_path, api), "/api/policy/rollback"
    if version is None:
        _show(asked.call("POST", path, Policies), as_json)
    else:
        _show(asked.call("POST", path, Policies, version=version), as_json)


def _show(policies: Policies, as_json: bool) -> None:
    click.echo(msgspec.json.encode(policies).decode() if as_json else in_words(policies))


def _share(text: str) -> tuple[str, float]:
    replica, equals, number = text.rpartition("=")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    if not equals or not replica or not 0 <= share <= 1:
        raise click.BadParameter(
            f"{text!r}: a replica and a share from 0 to 1, such as gpu-c=0.05", param_hint="--share"
        )
    return replica, share
