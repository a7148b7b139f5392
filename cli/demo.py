"""The demo's fleet: a file for it, and which replicas of a file are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from homing.core.config import Address, Config

FIRST_PORT = 9100
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SimulatedReplica:
    pool: str
    id: str
    address: Address
    model: str


def file_text(ports: Sequence[int]) -> str:
    """A `homing.yaml` with one pool of replicas on these ports of this machine; all else as by default."""
    replicas = "\n".join(f"      - {{id: sim-{i}, address: {HOST}:{port}}}" for i, port in enumerate(ports))
    return (
        "# Written by `homing up --demo`; gone when it ends.\n"
        "listen: 127.0.0.1:8080\n"
        "expose_decisions: true\n"
        "pools:\n"
        "  demo:\n"
        "    served_name: demo-model\n"
        "    aliases: [chat]\n"
        "    replicas:\n"
        f"{replicas}\n"
    )


def simulated(config: Config) -> tuple[SimulatedReplica, ...]:
    """The file's replicas at loopback addresses: what `--demo` starts."""
    return tuple(
        SimulatedReplica(pool.id, replica.id, replica.address, pool.served_name)
        for pool in config.pools
        for replica in pool.replicas
        if replica.address.is_loopback or replica.address.host.lower() == "localhost"
    )
