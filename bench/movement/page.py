"""The table as a page for users."""

from __future__ import annotations

from collections.abc import Sequence

from bench.movement.changes import Row

HEAD = """# What a change of membership moves

The share of the sessions that get another owner by the hash alone, measured over {keys} keys with the tables that the
pickers use (`python -m bench.movement --out docs/movement.md` makes this page). "Least" is what no hash can avoid: the
shares of the replicas that gain.

| replicas | change | least | ring (Envoy) | maglev (Envoy) | ketama (NGINX) |
|---|---|---|---|---|---|
"""

TAIL = """
- This is what happens while no picker runs, and to sessions that no picker remembers. A picker keeps the sessions
  that it knows where they are, whatever the hash says: adding a replica moves none of them, and only those of a replica
  that is gone move.
- A replica that stops answering moves more on Envoy's ring than its own sessions, since Envoy keeps the ring's size and
  the others get more points. One that is removed from the file moves its own only: the size follows the membership.
- A replica that drains stays in the hash: its sessions still come to it.
- NGINX passes over a server that does not answer and keeps all points where they are.
"""


def page(rows: Sequence[Row], keys: int) -> str:
    return HEAD.format(keys=f"{keys:,}") + "".join(map(_line, rows)) + TAIL


def _line(row: Row) -> str:
    shares = " | ".join(f"{share:.1%}" for share in (row.least, row.ring, row.maglev, row.ketama))
    return f"| {row.replicas} | {row.change} | {shares} |\n"
