"""`homing nginx-sync`: NGINX's files follow the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from homing.cli.config_file import config_option, load
from homing.cli.nginx_settings import NginxOptions, nginx_options, settings_of


@click.command("nginx-sync")
@config_option
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the files are: as `homing render nginx` writes them there.",
)
@click.option("--all-fragments", is_flag=True, help="The files are fragments, included by a configuration of your own.")
@click.option("--control", metavar="URL", help="The control service. Without it the file alone says who is there.")
@click.option("--name", default="nginx-sync", show_default=True, help="Its name in the control service's lists.")
@click.option("--test-command", default="nginx -t", show_default=True, metavar="COMMAND")
@click.option("--reload-command", default="nginx -s reload", show_default=True, metavar="COMMAND")
@click.option("--once", is_flag=True, help="Write what is now, reload if it changed, and end: exit code 1 if refused.")
@nginx_options
def command(
    config_path: str,
    out: Path,
    all_fragments: bool,
    control: str | None,
    name: str,
    test_command: str,
    reload_command: str,
    once: bool,
    **given: Unpack[NginxOptions],
) -> None:
    """Write NGINX's files when the fleet changes, test them, reload; take them back where NGINX refuses them."""
    import asyncio
    import logging
    import shlex
    import sys

    from homing.control import nginx_config
    from homing.control.nginx_sync import Commands, Follower, NginxFiles, Synced
    from homing.control.reload import Reloader
    from homing.control.tls import ProcessTls
    from homing.control.trust import in_control
    from homing.core.config import Config
    from homing.core.fleet import Fleet

    how = settings_of(given, config_path)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)

    def render(config: Config, fleet: Fleet) -> dict[str, str]:
        if not all_fragments:
            return nginx_config.render_whole(config, fleet, how)
        known = nginx_config.fragments(fleet, how)
        return {f.file: nginx_config.render_fragment(f, config, fleet, how) for f in known}

    reloader = Reloader(Path(config_path), load(config_path), lambda _: changed())
    known = ProcessTls(reloader.config.tls, Path(config_path))
    commands = Commands(shlex.split(test_command), shlex.split(reload_command))
    out.mkdir(parents=True, exist_ok=True)
    files = NginxFiles(out, lambda fleet: render(reloader.config, fleet), commands)
    follower = Follower(files)

    def changed() -> None:
        if control is None:
            follower.adopt(reloader.config.fleet())

    async def follow() -> None:
        changed()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reloader.run())
            tasks.create_task(follower.run())
            if control is not None:
                from homing.ext_proc.feed import Feed

                trust = in_control(reloader.config, Path(config_path), known, control)
                tasks.create_task(Feed(control, name, follower.adopt, trust).run())

    if once:
        synced = asyncio.run(files.apply(reloader.config.fleet()))
        click.echo(synced.value)
        sys.exit(0 if synced in (Synced.UNCHANGED, Synced.RELOADED) else 1)
    try:
        asyncio.run(follow())
    except KeyboardInterrupt:
        sys.exit(0)
