"""Which ports can be listened on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from homing.cli.ports import Wanted, bind, free_ports, overlapping, problems
from homing.core.config import Address


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of 127.0.0.1 that something listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_a_port_in_use_is_named_with_its_key(taken: int) -> None:
    assert problems([Wanted("listen", Address("127.0.0.1", taken))]) == (f"port {taken} (listen) is in use",)


def test_a_port_in_use_on_one_address_is_in_use_for_all(taken: int) -> None:
    assert problems([Wanted("listen", Address("0.0.0.0", taken))]) == (f"port {taken} (listen) is in use",)


def test_a_port_shared_by_reuse_port_is_in_use() -> None:
    """Envoy listens so: a second one would silently get half of the connections."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        port = server.getsockname()[1]
        assert problems([Wanted("listen", Address("127.0.0.1", port))]) == (f"port {port} (listen) is in use",)


def test_a_connection_of_the_last_run_is_no_obstacle() -> None:
    """The side that closes first stays in TIME_WAIT."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()
            assert client.recv(1) == b""
    assert problems([Wanted("listen", Address("127.0.0.1", port))]) == ()


def test_every_problem_is_told_and_nothing_else(taken: int) -> None:
    wanted = [Wanted("listen", Address("127.0.0.1", taken)), Wanted("admin", Address("127.0.0.1", free()))]
    foreign = Wanted("api", Address("192.0.2.1", 8600))
    assert problems([*wanted, foreign]) == (
        f"port {taken} (listen) is in use",
        "port 8600 (api): 192.0.2.1 is not an address of this machine",
    )


def test_ipv6_is_bound_as_ipv6() -> None:
    with bind(Address("::1", 0)) as sock:
        assert sock.family == socket.AF_INET6


def test_two_of_ours_on_one_port_are_told() -> None:
    wanted = [
        Wanted("listen", Address("0.0.0.0", 8080)),
        Wanted("admin", Address("127.0.0.1", 9901)),
        Wanted("replica a", Address("127.0.0.1", 8080)),
    ]
    assert overlapping(wanted) == ("port 8080 is both listen and replica a",)


def test_free_ports_are_the_preferred_ones_where_they_are_free(taken: int) -> None:
    first, second = free_ports(2, taken)
    assert first != taken
    assert second == taken + 1 or second > 1023  # its neighbour may be taken by another program
    assert len({first, second}) == 2
    assert problems([Wanted("a", Address("127.0.0.1", port)) for port in (first, second)]) == ()


def test_a_free_preferred_port_is_kept() -> None:
    port = free()
    assert free_ports(1, port) == (port,)
