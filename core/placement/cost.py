"""What it costs to send a request to a replica. Least wins; every term is a function of one replica.

For now one term: requests in flight for each unit of weight.
"""

from __future__ import annotations

from homing.core.fleet import Replica
from homing.core.placement.load import Load


def in_flight(pool_id: str, replica: Replica, load: Load) -> float:
    """Requests in flight for each unit of weight."""
    return load.in_flight((pool_id, replica.id)) / replica.weight
