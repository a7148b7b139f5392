"""`homing explain`: where a session's next turn would go, and why."""

from __future__ import annotations

import click
import msgspec

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.config_file import load
from homing.cli.duration import in_words


class Offer(msgspec.Struct):
    replica: str
    cost: float
    terms: dict[str, float]


class Receipt(msgspec.Struct):
    picker: str
    pool: str
    session: str
    hash_owner: str | None
    home: str | None
    pinned: bool
    idle_s: float | None
    prompt_tokens: float
    reason: str
    choice: str | None
    runner_up: str | None
    weighed: bool
    offers: list[Offer]


class Receipts(msgspec.Struct):
    receipts: list[Receipt]
    complete: bool


@click.command("explain")
@api_options
@click.option("--session", required=True, metavar="ID", help="The session's id.")
@click.option("--model", default="", help="In the pool of this model only.")
@click.option("--tenant", default="", help="Whose session it is, where there are tenants.")
@click.option(
    "--data-plane",
    type=click.Choice(["nginx"]),
    help="Say instead what this one would choose without a picker, by the file alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    config_path: str, api: ApiPlace, session: str, model: str, tenant: str, data_plane: str | None, as_json: bool
) -> None:
    """Say where a session's next turn would go if it came now, and why: the hash's owner, its home, what each replica
    would cost in tokens of prefill, by term. Changes nothing. Exit 1 where no picker answers.
    """
    if data_plane is not None:
        _alone(config_path, session, model, tenant, as_json)
        return
    asked = Api.at(config_path, api)
    if as_json:
        found = asked.call("GET", "/api/explain", dict[str, object], session=session, model=model, tenant=tenant)
        click.echo(msgspec.json.encode(found).decode())
        raise SystemExit(0 if found.get("receipts") else 1)
    answer = asked.call("GET", "/api/explain", Receipts, session=session, model=model, tenant=tenant)
    nobody = f"no picker answers, or none has a pool of the model {model}" if model else "no picker answers"
    click.echo("\n\n".join(map(said, answer.receipts)) or nobody)
    if not answer.complete:
        click.echo("not every picker answered", err=True)
    if not answer.receipts:
        raise SystemExit(1)


def _alone(config_path: str, session: str, model: str, tenant: str, as_json: bool) -> None:
    from homing.cli import explain_nginx

    found = explain_nginx.choices(load(config_path), session, tenant, model)
    if as_json:
        click.echo(msgspec.json.encode({"choices": found}).decode())
    else:
        click.echo("\n\n".join(map(explain_nginx.said, found)) or "the file lists no replicas for this model")
    if not found:
        raise SystemExit(1)


def said(receipt: Receipt) -> str:
    """For people."""
    lines = [
        f"pool {receipt.pool}, picker {receipt.picker}, session {receipt.session}",
        f"  hash's owner  {receipt.hash_owner or 'nobody'}",
        f"  home          {_home(receipt)}",
        f"  next turn     {receipt.choice or 'nobody can serve it'} ({receipt.reason}{_how(receipt)}),"
        f" about {receipt.prompt_tokens:.0f} tokens; runner-up {receipt.runner_up or 'nobody'}",
    ]
    if not receipt.offers:
        return "\n".join(lines)
    terms = [name for name in receipt.offers[0].terms if any(offer.terms[name] for offer in receipt.offers)]
    rows = [("replica", "cost", *terms)]
    rows += [(o.replica, f"{o.cost:.0f}", *(f"{o.terms[name]:.0f}" for name in terms)) for o in receipt.offers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
        lines.append("  " + "  ".join((row[0].ljust(widths[0]), *cells)))
    return "\n".join(lines)


def _home(receipt: Receipt) -> str:
    if receipt.home is None:
        return "not known"
    where = "pinned" if receipt.pinned else "where its hash says"
    idle = f", idle {in_words(receipt.idle_s)}" if receipt.idle_s is not None else ""
    return f"{receipt.home} ({where}{idle})"


def _how(receipt: Receipt) -> str:
    return ", by cost" if receipt.weighed else ""
