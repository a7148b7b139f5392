"""`homing status`: who serves, who drains, and what Envoy and the pickers were told."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import msgspec

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.drain import said
from homing.cli.duration import in_words
from homing.cli.fleet_view import Drain, Drains, File, Fleet, Pool, Replica
from homing.cli.policy_view import Policies
from homing.cli.policy_view import in_words as in_words_of_policy

SOON_S = 14 * 86_400.0
"""A certificate that runs out within this time is spoken of."""


class Told(msgspec.Struct):
    """Of one type of resources: `error`: why Envoy refuses the newest, empty where it does not."""

    error: str = ""


class Stream(msgspec.Struct):
    node: str
    envoy_version: str
    answer: str
    types: dict[str, Told] = {}


class Xds(msgspec.Struct):
    snapshot: str
    streams: list[Stream]


class Member(msgspec.Struct):
    name: str
    role: str


class Control(msgspec.Struct):
    """The control services that act as one; `state` is `local` where there is one only."""

    name: str
    role: str
    state: str
    trouble: str
    same_file: bool
    members: list[Member]


class Certificate(msgspec.Struct):
    use: str
    trouble: str
    expires_s: float | None


class Source(msgspec.Struct):
    pool: str
    kind: str
    replicas: int
    answered: bool
    error: str
    doubted: bool


class Difference(msgspec.Struct):
    pool: str
    replica: str
    believed: str
    source: str
    ours: str
    theirs: str


class Sources(msgspec.Struct):
    sources: list[Source]
    differences: list[Difference]


class Status(msgspec.Struct):
    """What `--json` prints."""

    fleet: Fleet
    drains: list[Drain]
    envoys: list[Stream]
    control: Control
    certificates: list[Certificate]
    policy: Policies
    sources: Sources


@click.command("status")
@api_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(config_path: str, api: ApiPlace, as_json: bool) -> None:
    """Show pools, replicas, drains and the connected Envoys."""
    asked = Api.at(config_path, api)
    status = Status(
        asked.call("GET", "/api/fleet", Fleet),
        asked.call("GET", "/api/drains", Drains).drains,
        asked.call("GET", "/api/xds", Xds).streams,
        asked.call("GET", "/api/control", Control),
        asked.call("GET", "/api/certificates", list[Certificate]),
        asked.call("GET", "/api/policy", Policies),
        asked.call("GET", "/api/sources", Sources),
    )
    click.echo(msgspec.json.encode(status).decode() if as_json else described(status, time.time()))


def described(status: Status, now_s: float) -> str:
    lines = ["BYPASS IS ON: traffic passes as if homing were not there"] if status.policy.now.bypass else []
    lines += of_file(status.fleet.file)
    for pool in status.fleet.pools:
        serving = sum(_serves(r) for r in pool.replicas)
        lines.append(
            f"pool {pool.id} ({pool.served_name}): {serving} of {len(pool.replicas)} replicas take new sessions"
        )
        lines += table(pool)
    lines += [said(drain, now_s) for drain in status.drains]
    lines += [line for stream in status.envoys for line in of_envoy(stream)] or ["no Envoy is connected"]
    if status.policy.now.pools or not status.policy.kept:
        lines += in_words_of_policy(status.policy).splitlines()
    lines += of_sources(status.sources)
    lines += of_control(status.control)
    lines += [line for certificate in status.certificates if (line := _warned(certificate, now_s))]
    if status.fleet.told != status.fleet.version:
        lines.append("a change is on its way: the pickers do not have it yet")
    return "\n".join(lines)


def of_file(file: File) -> list[str]:
    """That it is not what runs."""
    if not file.refused:
        return []
    when = datetime.fromtimestamp(file.refused_at_s or 0.0, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return [f"THE FILE WAS REFUSED at {when}, what runs is the one before: {file.refused}"]


def of_envoy(stream: Stream) -> list[str]:
    """What it says to the newest, and what it says against it."""
    refusals = [
        f"  refuses {name}, the one before stays: {told.error}" for name, told in stream.types.items() if told.error
    ]
    return [f"Envoy {stream.node} {stream.envoy_version}: {stream.answer}", *refusals]


def of_sources(found: Sources) -> list[str]:
    """What is wrong with where replicas come from."""
    lines = []
    for source in found.sources:
        if source.error:
            lines.append(f"source {source.kind} of pool {source.pool}: its last good answer stays: {source.error}")
        elif source.doubted:
            lines.append(f"source {source.kind} of pool {source.pool} finds nobody suddenly: not believed yet")
        elif source.answered and not source.replicas:
            lines.append(f"source {source.kind} of pool {source.pool} finds nobody")
    for one in found.differences:
        lines.append(
            f"pool {one.pool}, replica {one.replica}: {one.believed} says {one.ours}, and is believed;"
            f" {one.source} says {one.theirs}"
        )
    return lines


def of_control(control: Control) -> list[str]:
    """Of several control services: who decides, and what is wrong."""
    if control.state == "local":
        return []
    if control.role == "alone":
        return [f"control {control.name} decides alone: the store is away ({control.trouble})"]
    leads = [member.name for member in control.members if member.role == "leading"] or ["nobody"]
    lines = [f"control {' and '.join(leads)} leads, {len(control.members)} are there"]
    if not control.same_file:
        lines.append("their files have different replicas: the leader's counts")
    return lines


def _warned(certificate: Certificate, now_s: float) -> str:
    """Empty while there is nothing to do."""
    if certificate.trouble:
        return f"certificate ({certificate.use}): the one before stays: {certificate.trouble}"
    left_s = (certificate.expires_s or float("inf")) - now_s
    if left_s <= 0:
        return f"certificate ({certificate.use}): has run out"
    return f"certificate ({certificate.use}): runs out in {in_words(left_s)}" if left_s < SOON_S else ""


def _serves(replica: Replica) -> bool:
    return replica.healthy and replica.state == "ready" and not replica.failing and replica.takes_new_sessions


def _health(replica: Replica) -> str:
    if not replica.healthy:
        return f"unhealthy: {replica.trouble}" if replica.trouble else "unhealthy"
    if replica.state == "ready" and not replica.failing and not replica.takes_new_sessions:
        return "healthy, no new sessions: its share is 0"
    return "healthy, but fails requests: no new sessions" if replica.failing else "healthy"


def table(pool: Pool) -> list[str]:
    rows = [(r.id, r.address, r.state, _health(r)) for r in pool.replicas]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
