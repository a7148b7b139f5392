"""The data planes' own hashes, bit for bit: with and without a picker a session goes to the same replica."""

from homing.core.hashing.ketama import Ketama
from homing.core.hashing.maglev import Maglev
from homing.core.hashing.passing import Passing
from homing.core.hashing.ranked import Ranked
from homing.core.hashing.ring import Ring, minimum_ring_size
from homing.core.hashing.table import Hosts, Table

__all__ = ["Hosts", "Ketama", "Maglev", "Passing", "Ranked", "Ring", "Table", "minimum_ring_size"]
