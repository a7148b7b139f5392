"""The text of Envoy's configuration, filled in from the file and the fleet (templates in `envoy/`).

Three forms from one set of templates: whole and static; whole with the dynamic parts by ADS or from last-good files;
and fragments to paste into a configuration that exists already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING

import jinja2

from homing import __version__
from homing.control import envoy_tls
from homing.core.config.address import Address
from homing.core.fleet import Fleet, Pool
from homing.core.hashing import minimum_ring_size
from homing.core.session import KEY_ID_BYTES

if TYPE_CHECKING:
    from homing.core.config import Config

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

ERROR_TYPES = (
    (400, "BadRequestError"),
    (401, "AuthenticationError"),
    (404, "NotFoundError"),
    (413, "BadRequestError"),
    (429, "RateLimitError"),
    (503, "ServiceUnavailable"),
)
ADS_SOURCE: Json = {"ads": {}, "resource_api_version": "V3"}


@dataclass(frozen=True, slots=True)
class Wiring:
    """Where the pickers listen, `unix:/path` or `host:port`. Several pickers share the sessions; the standby waits.
    `sds`: the directory in which Envoy finds the files of `envoy_tls.secret_files`."""

    pickers: tuple[str, ...]
    standby: str | None = None
    sds: str = envoy_tls.DIRECTORY

    def __iter__(self) -> Iterator[str]:
        """All of them."""
        yield from self.pickers
        if self.standby is not None:
            yield self.standby


@dataclass(frozen=True, slots=True)
class Source:
    """Where Envoy gets what changes: from nowhere (static), by ADS, or from the last-good files in `directory`. `node`:
    who it says it is, and `pools`: the only ones that it wants to know of; none: all."""

    ads: bool = False
    directory: str | None = None
    node: str = "homing-envoy"
    pools: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        return self.ads or self.directory is not None


STATIC = Source()
ADS = Source(ads=True)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece to paste. `where` names the place in the user's file and what to do with keys that stand there already;
    tests/e2e/dropin.py does what it says, word for word. `notes` are what else can go wrong there."""

    name: str
    template: str
    where: str
    notes: tuple[str, ...] = ()
    pool: str | None = None


def fragments(config: Config, fleet: Fleet) -> tuple[Fragment, ...]:
    """Every fragment, in the order in which one would paste them."""
    isolation = (ISOLATION,) if _isolated(config) else ()
    return (*COMMON_FRAGMENTS, *isolation, *(_cluster_fragment(pool) for pool in fleet.pools))


COMMON_FRAGMENTS = (
    Fragment(
        "listener",
        "listener.yaml.j2",
        "the listener of the models: add the key, or keep a limit of its own that is smaller",
        ("1 MiB is also Envoy's default: where the listener sets no limit, nothing is needed.",),
    ),
    Fragment(
        "http-connection-manager",
        "hcm.yaml.j2",
        "the HttpConnectionManager of the models: add the keys; to an access_log append;"
        " into a local_reply_config put the mappers first",
        (
            "They act on requests that passed homing's filters only. Without this fragment sessions come home as well;",
            "errors made by Envoy are then plain text, and the picker does not learn who served after a retry.",
            "A max_stream_duration in common_http_protocol_options would end long answers.",
        ),
    ),
    Fragment(
        "http-filters",
        "filters.yaml.j2",
        "the http_filters of the HttpConnectionManager of the models: insert before the router",
        (
            "After filters that authenticate, answer CORS or change the path: the route is chosen anew behind these.",
            "Where several HttpConnectionManagers serve the models, into each.",
        ),
    ),
    Fragment(
        "virtual-host",
        "virtual_host.yaml.j2",
        "the virtual host of the models: add the keys; to response_headers_to_add and typed_per_filter_config append,"
        " other keys that stand there replace",
        (
            "Into every virtual host with a route to a pool: without it, clients there could choose a replica.",
            "What a route sets itself hides this: take out its request_body_buffer_limit, its old name",
            "per_request_buffer_limit_bytes, and its retry_policy; or give that one the retry_host_predicate and the",
            "host_selection_retry_max_attempts from here.",
        ),
    ),
    Fragment(
        "route",
        "route.yaml.j2",
        "the `route:` of each route that leads to a pool: add the keys, replace timeout and idle_timeout",
        ("A max_stream_duration would end long answers.",),
    ),
    Fragment(
        "routes",
        "routes.yaml.j2",
        "the routes of the virtual host of the models: replace those that lead to a pool, append to all others",
        (
            "Instead of the fragment `route`, where pools are to be chosen by the model that a request names.",
            "The last one takes every path: a catch-all of your own has to go.",
        ),
    ),
    Fragment("pickers", "pickers_fragment.yaml.j2", "static_resources.clusters: append"),
)

ISOLATION = Fragment(
    "isolation",
    "fail_closed.yaml.j2",
    "each route that leads to a pool with isolation: add the key, merge with what stands there",
    (
        "Only with the fragment `route`; `routes` brings it along. Without it, a request goes on without its salt when",
        "no picker answers.",
    ),
)


def _isolated(config: Config) -> frozenset[str]:
    """Pools that fail closed."""
    return frozenset(pool.id for pool in config.pools if pool.isolation.cache_salt == "tenant")


def _cluster_fragment(pool: Pool) -> Fragment:
    return Fragment(
        f"cluster:{pool.id}",
        "cluster_fragment.yaml.j2",
        f'the cluster "{pool.id}": replace the keys that stand here; remove'
        " lb_policy, lb_subset_config, cluster_type, *_lb_config, *_cluster_config, *http*_protocol_options",
        (
            "What is removed, Envoy refuses or ignores beside these keys. All others stay, outlier_detection for one.",
            "The cluster has to bear the pool's name. If its typed_extension_protocol_options hold more than this,",
            "merge: idle_timeout is what counts here.",
        ),
        pool.id,
    )


def stamp(text: str) -> str:
    """A fragment's version: homing's, and a hash of the text, so that stale copies can be told."""
    return f"homing {__version__} {blake2b(text.encode(), digest_size=4).hexdigest()}"


def render_fragment(fragment: Fragment, config: Config, fleet: Fleet, wiring: Wiring) -> str:
    pool = fleet.pool(fragment.pool) if fragment.pool else None
    text = render(fragment.template, config, fleet, wiring, STATIC, pool=pool)
    notes = "".join(f"# {note}\n" for note in fragment.notes)
    head = f"# fragment {fragment.name} ({stamp(text)})\n# Goes into {fragment.where}.\n{notes}"
    return f"{head}{text}\n# end of fragment {fragment.name}\n"


def render_bootstrap(config: Config, fleet: Fleet, wiring: Wiring, source: Source = STATIC) -> str:
    """A complete configuration. With STATIC nothing else of homing's is needed to start Envoy with it."""
    text = render("bootstrap.yaml.j2", config, fleet, wiring, source)
    return f"# Envoy for homing ({stamp(text)}). Start with: envoy -c FILE --disable-hot-restart\n{text}\n"


def render(
    template: str, config: Config, fleet: Fleet, wiring: Wiring, source: Source, *, pool: Pool | None = None
) -> str:
    """One template's text. `pool` where the template speaks of one pool. Raises jinja2.TemplateError on a bug only."""
    controls = config.control.xds or (config.xds,)
    return (
        _environment()
        .get_template(template)
        .render(
            ads_source=ADS_SOURCE,
            admin=config.admin,
            auto_model=config.auto.model if config.auto else "",
            error_types=ERROR_TYPES,
            cookie=config.sessions.cookie,
            engine_sessions=config.sessions.sagemaker == "engine",
            expose_decisions=config.expose_decisions,
            filter_names=filter_names(),
            control_filters=envoy_tls.token_filters(config, wiring.sds),
            control_sockets=envoy_tls.own_matches(config, map(str, controls) if config.tls.xds else (), wiring.sds),
            listener_socket=envoy_tls.listener_socket(config, wiring.sds),
            picker_sockets=envoy_tls.own_matches(config, wiring if config.tls.picker else [], wiring.sds),
            health=config.health,
            isolated=_isolated(config),
            listen=config.listen,
            missing_model=missing_model(fleet),
            models_json=models_json(fleet),
            node_id=source.node,
            node_metadata={"homing.pools": source.pools} if source.pools else None,
            pickers=wiring.pickers,
            pool=pool,
            pools=fleet.pools,
            config=config,
            sds=wiring.sds,
            session_headers=tuple(header.split("+") for header in config.sessions.headers),
            session_key=_session_key(config),
            session_ttl_s=round(config.sessions.ttl_s) if config.sessions.sagemaker == "gateway" else 0,
            source=source,
            standby=wiring.standby,
            tenant_header=config.tenants.header if config.tenants else None,
            tenant_trusted=config.tenants.trusted if config.tenants else False,
            unknown_model=_unknown_model_format(fleet),
            xds=controls,
            xds_by_name=any(address.ip is None for address in config.control.xds),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    """Every value is written as JSON, which is YAML: nothing in the file can break out of its place."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: files("homing").joinpath("envoy", name).read_text()),
        undefined=jinja2.StrictUndefined,
        finalize=_as_json,
        autoescape=False,
    )
    environment.filters |= {
        "by_name": _by_name,
        "bypassed": _bypassed,
        "duration": lambda seconds: f"{seconds:.3f}s",
        "envoy_address": _envoy_address,
        "host": lambda address: Address.parse(address).host,
        "engine_sockets": _engine_sockets,
        "tls_match": envoy_tls.match,
        "own_name": envoy_tls.own_name,
        "ring_size": lambda pool: minimum_ring_size([r.weight for r in pool.replicas]),
        "socket": _socket,
    }
    return environment


def _engine_sockets(pool: Pool, config: Config, sds: str) -> Json:
    said = next(each for each in config.pools if each.id == pool.id)
    return envoy_tls.engine_matches(said, (host.tls for host in pool.hosts), sds)


def _as_json(value: object) -> str:
    return json.dumps(value)


@cache
def filter_names() -> tuple[str, ...]:
    """Of homing's filters, in their order."""
    text = files("homing").joinpath("envoy", "filters.yaml.j2").read_text()
    return tuple(re.findall(r"^- name: (\S+)$", text, re.MULTILINE))


def _socket(address: object) -> Json:
    host, _, port = str(address).rpartition(":")
    return {"address": host.strip("[]"), "port_value": int(port)}


def _envoy_address(address: str) -> Json:
    if address.startswith("unix:"):
        return {"pipe": {"path": address.removeprefix("unix:")}}
    return {"socket_address": _socket(address)}


def _by_name(pool: Pool) -> bool:
    """Whether any replica is known by name only, so that Envoy has to resolve it."""
    for replica in pool.replicas:
        try:
            ip_address(replica.address.rpartition(":")[0].strip("[]"))
        except ValueError:
            return True
    return False


def _bypassed(pool: Pool) -> bool:
    """Whether no picker is asked, by policy. An alias has to be rewritten in any case."""
    return pool.mode == "off" and not pool.aliases


def _session_key(config: Config) -> str:
    """Tenant/session. The tenant counts only where a trusted hop sets it. Of a long id its beginning is the key: the
    whole would stand in the request twice, and Envoy refuses more than 60 KiB of headers."""
    tenant = f"%REQ({config.tenants.header.upper()})%" if config.tenants and config.tenants.trusted else ""
    return f"{tenant}/%REQ(X-SESSION-ID):{KEY_ID_BYTES}%"


def _names(fleet: Fleet) -> str:
    return ", ".join(name for pool in fleet.pools for name in pool.names)


def _unknown_model_format(fleet: Fleet) -> str:
    """Envoy puts the client's name for the model in."""
    return unknown_model(fleet, "\0").replace("%", "%%").replace("\0", "%DYNAMIC_METADATA(homing:model)%")


def unknown_model(fleet: Fleet, model: str) -> str:
    return f"The model {model} does not exist. Known models: {_names(fleet)}."


def missing_model(fleet: Fleet) -> str:
    return f"The request names no model, and there are several: {_names(fleet)}."


def models_json(fleet: Fleet) -> str:
    names = [name for pool in fleet.pools for name in pool.names]
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "homing"} for name in names]
    return json.dumps({"object": "list", "data": models})
