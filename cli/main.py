"""The `homing` command. Each sub-command is a small module, imported only when it is called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "up": "Run everything on this machine from one file.",
    "control": "Run the control service: membership, health, xDS, API.",
    "envoy": "Run Envoy, told by the control service.",
    "ext-proc": "Run one picker behind Envoy's ext_proc filter.",
    "nginx-sync": "Keep NGINX's files as the fleet is.",
    "sim": "Run one simulated vLLM replica.",
    "status": "Show pools, replicas, drains and Envoys.",
    "sessions": "Show where sessions live, or end one.",
    "explain": "Say where a session's next turn would go, and why.",
    "drain": "Let a replica finish its sessions, then leave.",
    "undrain": "Take a drain back.",
    "policy": "Show, set and roll back what operators decide at run time.",
    "bypass": "Let traffic pass as if homing were not there: on or off.",
    "plan": "Say what a change of replicas would move.",
    "init": "Write a first file from engines or from Envoy's configuration.",
    "check": "Validate the file.",
    "verify": "Measure what affinity does for a cluster, and why not.",
    "render": "Write Envoy's or NGINX's configuration, whole or in fragments.",
}


class LazyGroup(click.Group):
    """Imports `homing.cli.<name>` and takes its `command` only when needed: children must start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"homing.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="homing")
def main() -> None:
    """homing brings every conversation home: each turn goes to the vLLM replica that holds its KV cache."""
