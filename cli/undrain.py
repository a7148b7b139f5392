"""`homing undrain`: a replica that drains, or was drained away, serves again."""

from __future__ import annotations

import click
import msgspec

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.fleet_view import places


class Undrained(msgspec.Struct):
    was_draining: bool


@click.command("undrain")
@api_options
@click.argument("replica", metavar="ID")
def command(config_path: str, api: ApiPlace, replica: str) -> None:
    """Take the drain of the replica ID (or POOL/ID) back: it serves again once its probes succeed.

    Of an address with several data-parallel ranks: of all of them."""
    asked = Api.at(config_path, api)
    for pool, replica_id in places(asked, replica):
        answer = asked.call("POST", f"/api/pools/{pool}/replicas/{replica_id}/undrain", Undrained)
        name = f"{pool}/{replica_id}"
        click.echo(f"{name} serves again once its probes succeed" if answer.was_draining else f"{name} was not drained")
