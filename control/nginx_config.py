"""The text of NGINX's configuration, filled in from the file and the fleet (templates in `nginx/`).

Works alone: no process of homing's is asked. Two variants: with njs (the model is found in the body) and without (the
hash only). Whole, or as fragments to include in a configuration that exists already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from homing.control.envoy_config import ERROR_TYPES, missing_model, models_json, stamp, unknown_model
from homing.control.nginx_tls import NginxTlsError as NginxTlsError
from homing.control.nginx_tls import nginx_tls
from homing.core.context.plan import Need, Plan
from homing.core.fleet import Fleet, Pool
from homing.core.hashing import Ketama

if TYPE_CHECKING:
    from homing.core.config import Config
    from homing.core.config.models import PoolConfig

SCRIPT = "homing.js"
NEVER_FROM_CLIENTS = ("x-homing-odd", "x-homing-expires", "x-homing-new-session", "x-gateway-destination-endpoint")
_OURS = (
    *NEVER_FROM_CLIENTS,
    *(f"x-homing-{name}" for name in ("given", "key", "decision", "ref", "cookie", "auto", "learn", "pool", "request")),
)
"""What no replica gets from a client."""
SCRIPT_SAYS = ("pool", "decision", "ref", "repairs", "body", "model", "path", "body_bytes", "auto", "learn", "learned",
               "set_cookie", "rank")  # fmt: skip
WAYS = (
    ("homing", False, False),
    ("homing_changed", True, False),
    ("homing_heard", False, True),
    ("homing_changed_heard", True, True),
)
"""Locations that lead to replicas: the name, whether the body was changed, whether the answer is listened to."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`njs_module` as in load_module; `access_log` as in access_log, before the format's name.

    `pickers`: whom the script asks, `standby` if none of them answers (their HTTP ports), for `budget_ms` at most, ten
    times that where a body goes with the question; `logs`: where they hear of outcomes, host:port. The others are
    `unix:/path` or `host:port`."""

    njs: bool
    njs_module: str
    access_log: str
    pickers: tuple[str, ...] = ()
    standby: str | None = None
    logs: tuple[str, ...] = ()
    budget_ms: int = 20
    beside: Path = Path("homing.yaml")
    """The file that names certificates."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece to include. `where` names the place in the user's configuration."""

    name: str
    template: str
    where: str
    notes: tuple[str, ...] = ()
    pool: str | None = None
    comment: str = "#"

    @property
    def file(self) -> str:
        return SCRIPT if self.name == "script" else self.name.replace(":", "-") + ".conf"


def fragments(fleet: Fleet, settings: Settings) -> tuple[Fragment, ...]:
    """Every fragment, in the order in which one would include them."""
    script = Fragment(
        "script", "homing.js.j2", f"a file {SCRIPT} beside the one that includes the fragment http", comment="//"
    )
    upstreams = tuple(
        Fragment(
            f"upstream:{pool.id}",
            "upstream.conf.j2",
            f'the http block, in place of the upstream "{pool.id}"',
            ("Replicas are hashed by these addresses, as written: the same in every NGINX.",),
            pool.id,
        )
        for pool in fleet.pools
    )
    return (
        *((script,) if settings.njs else ()),
        Fragment(
            "http",
            "http.conf.j2",
            "the http block, before its servers",
            ("With njs the configuration has to load its module.",) if settings.njs else (),
        ),
        *upstreams,
        Fragment(
            "server",
            "server.conf.j2",
            "the server block of the models, in place of the locations that lead to them",
            (
                "Takes every path: locations of your own that are more specific stay.",
                "Where several servers share the address, NGINX takes underscores_in_headers and the header buffers",
                "from the default one: put these two lines there.",
            ),
        ),
    )


def render_fragment(fragment: Fragment, config: Config, fleet: Fleet, settings: Settings) -> str:
    pool = fleet.pool(fragment.pool) if fragment.pool else None
    text = _render(fragment.template, config, fleet, settings, pool)
    mark = fragment.comment
    notes = "".join(f"{mark} {note}\n" for note in fragment.notes)
    head = f"{mark} fragment {fragment.name} ({stamp(text)})\n{mark} Goes into {fragment.where}.\n{notes}"
    return f"{head}{text}\n{mark} end of fragment {fragment.name}\n"


def render_whole(config: Config, fleet: Fleet, settings: Settings) -> dict[str, str]:
    """The files of a complete configuration by name: nginx.conf, and with njs the script that it imports."""
    text = _render("nginx.conf.j2", config, fleet, settings, None)
    whole = {"nginx.conf": f"# NGINX for homing ({stamp(text)}). Start with: nginx -c FILE\n{text}\n"}
    if settings.njs:
        whole[SCRIPT] = _render("homing.js.j2", config, fleet, settings, None) + "\n"
    return whole


def _render(template: str, config: Config, fleet: Fleet, settings: Settings, pool: Pool | None) -> str:
    tenants = config.tenants
    trusted = tenants is not None and tenants.trusted
    asked = fleet.pools if settings.pickers else ()
    tls = nginx_tls(config, fleet, settings.beside)
    return (
        _environment()
        .get_template(template)
        .render(
            access_log=settings.access_log,
            closed=_table((p.id, "") for p in config.pools if p.isolation.cache_salt == "tenant"),
            asks_pickers=bool(settings.pickers),
            auto_model=config.auto.model if config.auto else None,
            budget_ms=settings.budget_ms,
            cookie=config.sessions.cookie.name if config.sessions.cookie else None,
            error_types=dict(ERROR_TYPES),
            errors={status: _error(status, message) for status, message in _ERRORS},
            expose_decisions=config.expose_decisions,
            keys=_table((f"{p.id}/{r}", key) for p in asked for r, key in _keys(p).items()),
            listen=str(config.listen),
            logs=settings.logs,
            missing_model=missing_model(fleet),
            models=_table((name, p.id, p.served_name) for p in fleet.pools for name in p.names),
            models_json=models_json(fleet),
            never=NEVER_FROM_CLIENTS,
            njs=settings.njs,
            njs_module=settings.njs_module,
            only_pool=fleet.pools[0].id if len(fleet.pools) == 1 else None,
            pickers=settings.pickers,
            pool=pool,
            pools=fleet.pools,
            reads=_table((p.id, "") for p in config.pools if _reads(p)),
            sagemaker=config.sessions.sagemaker,
            script=SCRIPT,
            script_says=SCRIPT_SAYS,
            # two spellings may be one variable: session-id and session_id
            session_headers=tuple(dict.fromkeys(map(_SessionHeader.of, config.sessions.headers))),
            session_ttl_s=round(config.sessions.ttl_s),
            signed=config.sessions.signed is not None and bool(settings.pickers),
            standby=settings.standby,
            stripped=(*_OURS, *((tenants.header,) if tenants is not None and not trusted else ())),
            tls=tls,
            tenant=f"$http_{_variable(tenants.header)}" if tenants is not None and trusted else "",
            unknown_model=unknown_model(fleet, "{model}"),
            ways=WAYS if settings.pickers else WAYS[:2],
        )
    )


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """As the script looks things up. No name has blanks or control characters."""
    return "".join("\n" + "\t".join(row) for row in rows) + "\n"


def _reads(pool: PoolConfig) -> bool:
    """Whether the picker wants every body, by the file alone: it is asked with the body at once then."""
    needs = Plan.of(pool, None).needs
    return bool(needs - {Need.LOST_SYSTEM}) or pool.repair.lost_system == "restore"


def _keys(pool: Pool) -> dict[str, str]:
    """For each replica a key whose hash is that replica: how the script sends a request where the picker says."""
    hosts = pool.hosts
    table = Ketama([(host.address, host.weight) for host in hosts])
    found: dict[str, str] = {}
    for number in count():
        owner = table.owner(b"%d" % number)
        if owner is None or len(found) == len(hosts):
            return {r.id: found[host.id] for host in hosts if host.id in found for r in host.ranks}
        found.setdefault(hosts[owner].id, str(number))
    raise AssertionError("count() does not end")


@dataclass(frozen=True, slots=True)
class _SessionHeader:
    """A header with the session's id, and the one with a part of it, as NGINX's variables name them."""

    name: str
    part: str | None

    @classmethod
    def of(cls, header: str) -> _SessionHeader:
        name, _, part = header.partition("+")
        return cls(_variable(name), _variable(part) if part else None)


def _variable(header: str) -> str:
    return header.lower().replace("-", "_")


def _error(status: int, message: str) -> str:
    """As an argument of `return`."""
    kind = dict(ERROR_TYPES).get(status, "ServiceUnavailable")
    return "'" + json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}) + "'"


_ERRORS = (
    (413, "The request is too large."),
    (500, "The gateway failed."),
    (503, "No replica could be reached."),
    (504, "The replica did not answer in time."),
)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: files("homing").joinpath("nginx", name).read_text()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {"json": json.dumps, "last_address": _last_address, "map_key": _map_key, "regex": re.escape}
    return environment


def _last_address(address: str) -> str:
    """A map's pattern for $upstream_addr, which lists all that were tried: `a, b`, or `a : b` after a redirect."""
    return f'"~(^|[ ,]){re.escape(address)}$"'


def _map_key(name: str) -> str:
    """A map's pattern for exactly this: its plain keys take no notice of case, and have to fit into its buckets."""
    return f'"~^{re.escape(name)}$"'
