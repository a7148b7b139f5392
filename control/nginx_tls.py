"""TLS as NGINX is told of it. Its certificates are read when it starts or is reloaded.

NGINX trusts one set of authorities and shows one certificate in a location, whichever pool a request goes to, and
expects one name of all servers of an upstream: what the file says beyond that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from homing.control.certificates import Files
from homing.control.envoy_tls import SYSTEM_AUTHORITIES
from homing.core.config import Config
from homing.core.fleet import Fleet


class NginxTlsError(ValueError):
    """NGINX cannot do what the file says. Its text is one line."""


@dataclass(frozen=True, slots=True)
class NginxTls:
    """`listen`: of the server, None for plain text; `engines`: None where no pool speaks TLS; `names`: what the
    certificates of the others have to bear, by pool."""

    listen: Files | None = None
    engines: Files | None = None
    names: dict[str, str] = field(default_factory=dict)

    @property
    def authorities(self) -> str:
        return str(self.engines.ca) if self.engines is not None and self.engines.ca is not None else SYSTEM_AUTHORITIES


def nginx_tls(config: Config, fleet: Fleet, beside: Path) -> NginxTls:
    """`beside`: the file that names certificates. Raises NginxTlsError."""
    listen = Files.of(config.tls.listen, beside) if config.tls.listen is not None else None
    engines = {pool.id: Files.of(pool.engine, beside) for pool in config.pools}
    names: dict[str, str] = {}
    for pool in fleet.pools:
        wanted = sorted({host.tls for host in pool.hosts})
        if any(wanted):
            names[pool.id] = _one(pool.id, wanted)
    trusted = _distinct(engines[pool_id] for pool_id in names)
    if len(trusted) > 1:
        raise NginxTlsError(f"pools {' and '.join(names)} have other certificates or authorities: NGINX takes one set")
    return NginxTls(listen, trusted[0] if trusted else None, names)


def _one(pool_id: str, wanted: list[str]) -> str:
    if len(wanted) > 1:
        said = ", ".join(name or "plain HTTP" for name in wanted)
        raise NginxTlsError(
            f"pool {pool_id}: its engines are known by several names ({said}), NGINX takes one: engine.server_name"
        )
    return wanted[0]


def _distinct(files: Iterable[Files]) -> list[Files]:
    return list(dict.fromkeys(files))
