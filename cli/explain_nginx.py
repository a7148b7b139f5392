"""`homing explain --data-plane nginx`: where NGINX would send a session if no picker answered it. By the file alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from homing.core.config import Config
    from homing.core.fleet import Pool

SHOWN = 3


class Choice(msgspec.Struct, frozen=True):
    """`then`: who comes next where the choice takes no connection. `minted`: whether pickers mint ids for this hash."""

    pool: str
    choice: str
    address: str
    then: list[str]
    minted: bool


def choices(config: Config, session: str, tenant: str, model: str) -> list[Choice]:
    """In each pool whose replicas the file lists; in that of `model` only, where one is named."""
    key = _key(config, session, tenant)
    pools = [pool for pool in config.fleet().pools if pool.replicas and (not model or model in pool.names)]
    return [_choice(pool, key) for pool in pools]


def said(choice: Choice) -> str:
    """For people."""
    lines = [f"pool {choice.pool}, NGINX alone", f"  next turn     {choice.choice} at {choice.address}"]
    lines.append(f"  if it is down {', '.join(choice.then) or 'nobody'}")
    if not choice.minted:
        lines.append("  pickers mint ids for Envoy's hash here: `hash: ketama` in the pool makes them fit NGINX's")
    return "\n".join(lines)


def _key(config: Config, session: str, tenant: str) -> bytes:
    """As NGINX makes it: nginx/http.conf.j2."""
    from homing.core.session import SessionKey

    trusted = config.tenants is not None and config.tenants.trusted
    owner = tenant.encode() if trusted else b""
    return SessionKey(owner, b"", owner + b"/").named(session.encode()).text


def _choice(pool: Pool, key: bytes) -> Choice:
    from homing.core.hashing import Ketama

    table = Ketama([(replica.address, replica.weight) for replica in pool.replicas])
    first, *others = _distinct(table.walk(key), SHOWN)
    replicas = pool.replicas
    return Choice(
        pool.id, replicas[first].id, replicas[first].address, [replicas[n].id for n in others], pool.hash == "ketama"
    )


def _distinct(indexes: Iterable[int], count: int) -> Sequence[int]:
    found: dict[int, None] = {}
    for index in indexes:
        found[index] = None
        if len(found) == count:
            break
    return list(found)
