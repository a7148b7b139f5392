"""The control service's API, from the command line: `--api URL`, or the address in the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from homing.cli.config_file import config_option, load

if TYPE_CHECKING:
    import httpx

Command = TypeVar("Command", bound=Callable[..., object])
T = TypeVar("T")

TIMEOUT_S = 10.0


def api_options(command: Command) -> Command:
    """Adds `-c FILE` and `--api URL` as the parameters `config_path` and `api`."""
    return config_option(
        click.option("--api", metavar="URL", help="The control service.  [default: `api` of the file]")(command)
    )


class Api:
    """One connection. Each call raises click.ClickException (one line, exit code 1) for what is not answered."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    @classmethod
    def at(cls, config_path: str, api: str | None) -> Api:
        import httpx

        url = api if api is not None else f"http://{load(config_path).api}"
        return cls(httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False))

    def call(self, method: str, path: str, answer: type[T], body: bytes | None = None, **query: str | float) -> T:
        """The answer, decoded as `answer`. `body`: JSON."""
        import httpx
        import msgspec

        try:
            headers = {"content-type": "application/json"} if body is not None else None
            response = self._client.request(method, path, params=query, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise click.ClickException(f"no control service at {self._client.base_url}: {error}") from None
        if response.is_error:
            raise click.ClickException(_detail(response.content) or f"{method} {path}: {response.status_code}")
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            raise click.ClickException(f"{path} answers something else: {error}") from None


def _detail(body: bytes) -> str:
    import msgspec

    class Refusal(msgspec.Struct):
        detail: str

    try:
        return msgspec.json.decode(body, type=Refusal).detail
    except msgspec.MsgspecError:
        return ""
