"""`homing sessions`: where sessions live, and their end by word."""

from __future__ import annotations

from urllib.parse import quote

import click
import msgspec

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.duration import in_words


class Session(msgspec.Struct):
    session: str
    pool: str
    replica: str
    idle_s: float
    pinned: bool | None


class Sessions(msgspec.Struct):
    sessions: list[Session]
    total: int
    complete: bool


@click.command("sessions")
@api_options
@click.argument("session", metavar="[ID]", required=False)
@click.option("--close", is_flag=True, help="The session ID has ended: forget where it lives.")
@click.option("--tenant", default="", help="Whose session ID is, where there are tenants.")
@click.option("--pool", default="", help="In this pool only.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="So many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    config_path: str,
    api: ApiPlace,
    session: str | None,
    close: bool,
    tenant: str,
    pool: str,
    limit: int,
    as_json: bool,
) -> None:
    """Show where sessions live: the one with the id ID, or those that were used last.

    A list shows keyed hashes of the ids, never the ids. Exit 1 where no picker knows ID.
    """
    if session is None and (close or tenant):
        raise click.UsageError(f"{'--close' if close else '--tenant'} is about one session: give its ID")
    asked = Api.at(config_path, api)
    if session is None:
        found = asked.call("GET", "/api/sessions", Sessions, limit=limit, pool=pool)
    else:
        method, path = "DELETE" if close else "GET", f"/api/sessions/{quote(session, safe='')}"
        found = asked.call(method, path, Sessions, tenant=tenant, pool=pool)
    click.echo(msgspec.json.encode(found).decode() if as_json else said(found, one=session is not None, close=close))
    if not found.complete:
        click.echo("not every picker answered", err=True)
    if session is not None and not found.sessions:
        raise SystemExit(1)


def said(found: Sessions, *, one: bool, close: bool) -> str:
    """For people."""
    if not found.sessions:
        return "no picker knows this session" if one else "no sessions"
    rows = [(s.session, s.pool, s.replica, f"idle {in_words(s.idle_s)}", _pin(s)) for s in found.sessions]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    if close:
        return "\n".join((*lines, "closed"))
    return "\n".join(lines) if one else "\n".join((*lines, f"{len(rows)} shown; {found.total} remembered"))


def _pin(session: Session) -> str:
    return "" if session.pinned is None else "pinned" if session.pinned else "where its hash says"
