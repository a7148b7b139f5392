"""Which TCP ports of this machine can be listened on."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from homing.core.config import Address


@dataclass(frozen=True, slots=True)
class Wanted:
    """An address that something of ours will listen on; `key` is where the file says so."""

    key: str
    address: Address


def problems(wanted: Iterable[Wanted]) -> tuple[str, ...]:
    """One line per address that cannot be bound."""
    return tuple(line for each in wanted if (line := _problem(each)))


def free_ports(count: int, first: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """`first`, `first + 1` and so on; instead of each that is taken, one that the kernel chooses."""
    with contextlib.ExitStack() as held:
        return tuple(_free_port(Address(host, first + i), held) for i in range(count))


def bind(address: Address) -> socket.socket:
    """A socket bound as servers bind theirs: with SO_REUSEADDR, so that connections of the last run, still in
    TIME_WAIT, are no obstacle. Without SO_REUSEPORT, which would let two Envoys share a port. Raises OSError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
    except OSError:
        sock.close()
        raise
    return sock


def _problem(wanted: Wanted) -> str | None:
    try:
        bind(wanted.address).close()
    except OSError as error:
        where = f"port {wanted.address.port} ({wanted.key})"
        match error.errno:
            case errno.EADDRINUSE:
                return f"{where} is in use"
            case errno.EACCES:
                return f"{where} needs more rights than this user has"
            case errno.EADDRNOTAVAIL:
                return f"{where}: {wanted.address.host} is not an address of this machine"
        return f"{where} cannot be listened on: {error.strerror}"
    return None


def _free_port(preferred: Address, held: contextlib.ExitStack) -> int:
    try:
        sock = bind(preferred)
    except OSError:
        sock = bind(Address(preferred.host, 0))
    held.enter_context(sock)
    port: int = sock.getsockname()[1]
    return port


def overlapping(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """One line per address that another of ours takes."""
    return tuple(
        f"port {one.address.port} is both {other.key} and {one.key}"
        for i, one in enumerate(wanted)
        for other in wanted[:i]
        if one.address.overlaps(other.address)
    )
