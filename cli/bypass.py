"""`homing bypass`: the kill switch."""

from __future__ import annotations

import click

from homing.cli.api_client import Api, ApiPlace, api_options
from homing.cli.policy_view import Policies, in_words, put


@click.command("bypass")
@api_options
@click.argument("state", type=click.Choice(["on", "off"]))
def command(config_path: str, api: ApiPlace, state: str) -> None:
    """Let traffic pass as if homing were not there, or take that back.

    Pickers decide and repair nothing, and Envoy does not ask them; the hash of the session key goes on. Aliases and
    isolation hold still: without them requests would fail, or share what they must not.
    """
    asked = Api.at(config_path, api)
    now = asked.call("GET", "/api/policy", Policies).now
    if now.bypass == (state == "on"):
        click.echo(f"bypass is {state} already")
        return
    click.echo(in_words(put(asked, now, bypass=state == "on", pools=now.pools)))
