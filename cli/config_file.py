"""The option `-c FILE` and what it leads to: a Config, or one line per problem and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from homing.core.config import Config, ConfigError

Command = TypeVar("Command", bound=Callable[..., object])


class InvalidConfig(click.ClickException):
    """The file cannot be used. Shown without click's prefix, so that editors can follow FILE:LINE."""

    exit_code = 2

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self.problems = error.problems

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


def config_option(command: Command) -> Command:
    """Adds `-c FILE` as the parameter `config_path`: a path, since most commands read it again on a change."""
    option = click.option(
        "-c", "--config", "config_path", metavar="FILE", default="homing.yaml", show_default=True, help="The file."
    )
    return option(command)


def sds_option(command: Command) -> Command:
    """Adds `--sds DIR` as the parameter `sds`."""
    option = click.option(
        "--sds",
        metavar="DIR",
        default="/run/homing/sds",
        show_default=True,
        help="Where Envoy finds the files of `homing render sds`, where the file has tls.",
    )
    return option(command)


def load(path: str) -> Config:
    """The configuration in the file `path`. Raises InvalidConfig, which click shows before it exits with 2."""
    from homing.core.config import ConfigError

    try:
        return read(path)
    except ConfigError as e:
        raise InvalidConfig(e) from None


def read(path: str) -> Config:
    """The same without click. Raises ConfigError, also when the file cannot be read."""
    from homing.control.reload import load as load_file

    return load_file(Path(path))
