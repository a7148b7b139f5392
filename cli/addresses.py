"""Addresses on the command line, unix:/path or host:port, and how a wrong one is told: one line, exit code 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from homing.core.config import Address

MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path, with its end


class RefusedError(click.ClickException):
    """Something that the user has to mend: one line, exit code 2."""

    exit_code = 2


def checked(address: str, option: str = "") -> str:
    """The address as it is. Raises RefusedError when it is none; `option` is where it was said."""
    from homing.core.config import Address

    if address.startswith("unix:/"):
        if len(address.encode()) > len("unix:") + MAX_SOCKET_PATH_BYTES:
            raise RefusedError(f"{address!r} is too long for a Unix socket: at most {MAX_SOCKET_PATH_BYTES} bytes")
        return address
    try:
        Address.parse(address)
    except ValueError as error:
        place = f"{option}: " if option else ""
        raise RefusedError(f"{place}{address!r} is neither unix:/path nor host:port ({error})") from None
    return address


def datagrams(address: str, option: str) -> Address:
    """An address for UDP: host:port. Raises RefusedError when it is none."""
    from homing.core.config import Address

    try:
        return Address.parse(address)
    except ValueError as error:
        raise RefusedError(f"{option}: {address!r} is not host:port ({error})") from None
