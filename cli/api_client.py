"""The control service's API, from the command line: `--api URL`, or the address in the file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import click

from homing.cli.config_file import config_option, load

if TYPE_CHECKING:
    import ssl

    import httpx

    from homing.core.config import Config
    from homing.core.config.secret import SecretRef

Command = TypeVar("Command", bound=Callable[..., object])
T = TypeVar("T")

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ApiPlace:
    """Where the API is and how it is spoken to, as far as the command line says; the rest is in the file."""

    url: str | None
    ca: Path | None
    cert: Path | None
    key: Path | None
    token: SecretRef | None


def api_options(command: Command) -> Command:
    """Adds `-c FILE` as the parameter `config_path`, and `--api URL` with how it is spoken to as `api`."""

    @functools.wraps(command)
    def placed(
        *,
        api: str | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        token: str | None,
        **more: object,
    ) -> object:
        return command(api=ApiPlace(api, ca, cert, key, _secret(token)), **more)

    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = (
        click.option("--api", metavar="URL", help="The control service.  [default: `api` of the file]"),
        click.option("--ca", type=path, metavar="FILE", help="Whom to trust.  [default: `tls.client` of the file]"),
        click.option("--cert", type=path, metavar="FILE", help="What to show, with --key.  [default: the same]"),
        click.option("--key", type=path, metavar="FILE", help="The key of --cert."),
        click.option("--token", metavar="PLACE", help="env:NAME or file:PATH.  [default: `tokens` of the file]"),
    )
    made = cast("Command", placed)
    for option in reversed(options):
        made = option(made)
    return config_option(made)


class Api:
    """One connection. Each call raises click.ClickException (one line, exit code 1) for what is not answered."""

    def __init__(self, client: httpx.Client, token_trouble: str = "") -> None:
        """`token_trouble`: why no token is shown, though there should be one."""
        self._client = client
        self._token_trouble = token_trouble

    @classmethod
    def at(cls, config_path: str, api: ApiPlace) -> Api:
        import httpx

        from homing.cli.probes import reachable
        from homing.control.secrets import SecretError
        from homing.control.tokens import bearer

        config = load(config_path) if api.url is None or Path(config_path).is_file() else None
        url = api.url
        if url is None:
            assert config is not None
            url = f"{'http' if config.tls.api is None else 'https'}://{reachable(config.api)}"
        token = api.token or (config.tokens.admin or config.tokens.fleet if config is not None else None)
        headers, trouble = {}, ""
        if token is not None:
            beside = Path("file") if api.token is not None else Path(config_path)
            try:
                headers["authorization"] = bearer(token, beside)
            except SecretError as error:  # without, one may read from this machine
                trouble = str(error)
        verify = _trusted(config, Path(config_path), api) if url.startswith("https:") else True
        try:
            client = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False, verify=verify, headers=headers)
        except httpx.InvalidURL as error:
            raise click.UsageError(f"--api {url}: {error}") from None
        return cls(client, trouble)

    def call(self, method: str, path: str, answer: type[T], body: bytes | None = None, **query: str | float) -> T:
        """The answer, decoded as `answer`. `body`: JSON."""
        import httpx
        import msgspec

        from homing.cli.refusal import detail

        try:
            headers = {"content-type": "application/json"} if body is not None else None
            response = self._client.request(method, path, params=query, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise click.ClickException(f"no control service at {self._client.base_url}: {error}") from None
        if response.is_error:
            said = detail(response.content) or f"{method} {path}: {response.status_code}"
            why = f" ({self._token_trouble})" if response.status_code == 401 and self._token_trouble else ""
            raise click.ClickException(said + why)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            raise click.ClickException(f"{path} answers something else: {error}") from None


def _trusted(config: Config | None, file: Path, api: ApiPlace) -> ssl.SSLContext:
    """Raises click.ClickException."""
    from homing.control.certificates import CertificateError, Files, client_context, tried
    from homing.control.tls import ProcessTls

    try:
        if config is not None and api.ca is None and api.cert is None:
            return ProcessTls(config.tls, file).client()
        files = Files(api.cert, api.key, api.ca)
        tried(files)
        return client_context(files)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None


def _secret(place: str | None) -> SecretRef | None:
    """Raises click.BadParameter."""
    if place is None:
        return None
    from homing.core.config.kinds import Secret

    try:
        return Secret()(place)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--token") from None
