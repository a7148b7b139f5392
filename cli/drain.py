"""`homing drain`: a replica takes no new sessions, and leaves when nothing is left there or its time is over."""

from __future__ import annotations

import sys
import time

import click

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.console import ERASE_LINE
from homing.cli.duration import duration, in_words
from homing.cli.fleet_view import Drain, Drains, places

EVERY_S = 0.5
AWAY_S = 30.0
"""So long after the deadline a control service that does not answer is waited for."""


@click.command("drain")
@api_options
@click.argument("replica", metavar="ID")
@click.option("--wait", is_flag=True, help="Until the replica has left; shows sessions and streams left.")
@click.option("--deadline", type=duration, default="15m", show_default=True, help="It leaves then at the latest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each replica.")
def command(config_path: str, api: ApiPlace, replica: str, wait: bool, deadline: float, as_json: bool) -> None:
    """Drain the replica ID (or POOL/ID).

    Sessions that live there go on there until they end or the deadline comes. Exit 0 when it drains, or has left.
    An address with several data-parallel ranks drains as a whole by its own ID.
    """
    import msgspec

    asked = Api.at(config_path, api)
    paths = [f"/api/pools/{pool}/replicas/{replica_id}/drain" for pool, replica_id in places(asked, replica)]
    drains = [asked.call("POST", path, Drain, deadline_s=deadline) for path in paths]
    until_s = time.time() + deadline + AWAY_S
    for begun in drains:
        drain = _waited(asked, begun, until_s) if wait else begun
        click.echo(msgspec.json.encode(drain).decode() if as_json else said(drain, time.time()))


def _waited(api: Api, drain: Drain, until_s: float) -> Drain:
    """The drain when it has ended. Raises click.ClickException when that is not to be learned in time."""
    live = sys.stderr.isatty()
    while drain.state != "left":
        if live:
            click.echo(f"{ERASE_LINE}{said(drain, time.time())}", err=True, nl=False)
        time.sleep(EVERY_S)
        try:
            drains = api.call("GET", "/api/drains", Drains).drains
        except click.ClickException:  # it may be on its way back: the drain survives
            if time.time() > until_s:
                raise
            continue
        found = [d for d in drains if (d.pool, d.replica) == (drain.pool, drain.replica)]
        if not found:
            raise click.ClickException(f"the drain of {drain.pool}/{drain.replica} was taken back")
        drain = found[0]
        if time.time() > until_s:
            raise click.ClickException(f"{drain.pool}/{drain.replica} has not left in time")
    if live:
        click.echo(ERASE_LINE, err=True, nl=False)
    return drain


def said(drain: Drain, now_s: float) -> str:
    """One line for people."""
    name = f"{drain.pool}/{drain.replica}"
    if drain.state == "left":
        moved = "an unknown number of" if drain.moved is None else drain.moved
        why = "nothing was left there" if drain.why == "idle" else f"its deadline came; {moved} sessions move"
        return f"{name} has left: {why}"
    left = "?" if drain.sessions is None else drain.sessions
    streams = "?" if drain.streams is None else drain.streams
    time_left = in_words(drain.deadline_s - now_s)
    return f"{name} drains: {left} sessions, {streams} streams left; leaves in {time_left} at the latest"
