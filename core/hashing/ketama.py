"""NGINX's `hash KEY consistent;`, which is ketama as Cache::Memcached::Fast has it.

Source: nginx `src/http/modules/ngx_http_upstream_hash_module.c` (update_chash, find_chash_point, get_chash_peer). A
server is named as its `server` directive names it. Servers that are down keep their points: the next point is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from homing.core.hashing.points import Points
from homing.core.hashing.table import Hosts

POINTS_PER_WEIGHT = 160
_packed = Struct("<I").pack


class Ketama:
    """Points are chained CRC-32s of the server's host, port and its last point; a key goes to the first at or after its
    own CRC-32. Where two servers have the same point, the one that is first in the configuration has it. Names
    that come to the same host and port (`a` and `a:`) have the same points, so one of them may own nothing."""

    __slots__ = ("_points",)

    def __init__(self, hosts: Hosts) -> None:
        points: dict[int, int] = {}
        for index in reversed(range(len(hosts))):  # so that the first comes last, and has what it shares
            server, weight = hosts[index]
            base, point = crc32(_named(server)), 0
            for _ in range(POINTS_PER_WEIGHT * weight):
                point = crc32(_packed(point), base)
                points[point] = index
        self._points = Points(points, len(hosts))

    def owner(self, key: bytes) -> int | None:
        return self._points.at(crc32(key))

    def walk(self, key: bytes) -> Iterator[int]:
        """NGINX itself gives up after 20 points and takes any server that is up."""
        return self._points.walk(crc32(key))


def _named(server: str) -> bytes:
    """Host, NUL, port. Only digits behind the last colon are a port."""
    name = server.encode()
    if name[:5].lower() == b"unix:":
        return name[5:] + b"\0"
    host, colon, port = name.rpartition(b":")
    return host + b"\0" + port if colon and (port.isdigit() or not port) else name + b"\0"
