"""TLS as Envoy is told of it: transport sockets, and the files by which it finds certificates (SDS).

Envoy takes a certificate that is replaced on disk only where it comes by SDS from a file that names its directory as
watched. So each certificate has such a file, NAME.json; what it names is moved over, as Kubernetes and certbot do, or
written whole. A certificate that does not fit its key is not taken (`sds.NAME.key_rotation_failed`).
Source: Envoy's docs/root/configuration/security/secret.rst and api/envoy/extensions/transport_sockets/tls/v3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from homing.control.certificates import Files
from homing.core.config.address import Address

if TYPE_CHECKING:
    from homing.core.config import Config, PoolConfig

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

DIRECTORY = "/run/homing/sds"
LISTEN, CLIENT, TOKEN = "homing-listen", "homing-client", "homing-fleet-token"
SYSTEM_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
BY_NAME = "by-name"

_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."


def secret_files(config: Config, beside: Path) -> Mapping[str, str]:
    """The SDS files that a configuration for Envoy refers to, by name. `beside`: the file that names certificates."""
    made: dict[str, Json] = {}
    if config.tls.listen is not None:
        made |= _secrets(LISTEN, Files.of(config.tls.listen, beside))
    if config.tls.picker is not None or config.tls.xds is not None:
        made |= _secrets(CLIENT, Files.of(config.tls.client, beside), trusts=True)
    for pool in config.pools:
        if pool.speaks_tls:
            made |= _secrets(engine_secret(pool.id), Files.of(pool.engine, beside), trusts=True)
    if shows_token(config):
        assert config.tokens.fleet is not None
        made[TOKEN] = {
            "generic_secret": {"secret": _token(config.tokens.fleet.source, config.tokens.fleet.name, beside)}
        }
    return {f"{name}.json": _discovery(name, secret) for name, secret in made.items()}


def write_secret_files(config: Config, beside: Path, directory: Path) -> None:
    """Into `directory`, which is made where there is anything to write. Raises OSError."""
    for name, text in secret_files(config, beside).items():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def shows_token(config: Config) -> bool:
    """Whether Envoy shows the control service a token: where no certificate is asked for."""
    asked = config.tls.xds is not None and config.tls.xds.client_ca is not None
    return config.tokens.fleet is not None and not asked


def listener_socket(config: Config, directory: str) -> Json:
    """What a filter chain of the data listener has as `transport_socket`; None for plain text."""
    said = config.tls.listen
    if said is None:
        return None
    common: dict[str, Json] = {
        "tls_certificate_sds_secret_configs": [_sds(LISTEN, directory)],
        "alpn_protocols": ["h2", "http/1.1"],
    }
    asked = said.client_ca is not None
    if asked:
        common["validation_context_sds_secret_config"] = _sds(f"{LISTEN}-ca", directory)
    return _socket("Downstream", {"common_tls_context": common, "require_client_certificate": asked})


def own_matches(config: Config, addresses: Iterable[str], directory: str) -> Json:
    """The `transport_socket_matches` of a cluster of homing's own processes at `addresses` (`unix:/path` for some);
    empty where all speak plain text."""
    said = config.tls.client
    names = (own_name(config, address) for address in addresses if not address.startswith("unix:"))
    return _matches(names, CLIENT, directory, said.cert is not None, ("h2",))


def own_name(config: Config, address: str) -> str:
    """The name that the certificate of the one at `address` has to bear."""
    return config.tls.client.server_name or Address.parse(address).host


def engine_matches(pool: PoolConfig, names: Iterable[str], directory: str) -> Json:
    """The same of a pool's cluster: `names` are those that the certificates of its engines have to bear."""
    return _matches(filter(None, names), engine_secret(pool.id), directory, pool.engine.cert is not None, ())


def match(name: str) -> str:
    """Which of its cluster's sockets an endpoint means (metadata `envoy.transport_socket_match`, `tls`) whose
    certificate has to bear `name`."""
    return name if _is_ip(name) else BY_NAME


def engine_secret(pool_id: str) -> str:
    return f"homing-engine-{pool_id}"


def _matches(names: Iterable[str], secret: str, directory: str, shows: bool, alpn: tuple[str, ...]) -> Json:
    """One socket serves all hosts that are known by names: each certificate has to bear its host's. An address needs
    one of its own, since SNI has names only. `shows`: a certificate of ours."""
    common: dict[str, Json] = {"alpn_protocols": alpn} if alpn else {}
    if shows:
        common["tls_certificate_sds_secret_configs"] = [_sds(secret, directory)]
    trusted = {"validation_context_sds_secret_config": _sds(f"{secret}-ca", directory)}
    found: dict[str, Json] = {}
    for key in dict.fromkeys(map(match, names)):
        if key == BY_NAME:
            context: dict[str, Json] = {
                "auto_host_sni": True,
                "auto_sni_san_validation": True,
                "common_tls_context": {**common, **trusted},
            }
        else:
            wanted: Json = [{"san_type": "IP_ADDRESS", "matcher": {"exact": key}}]
            combined: Json = {"default_validation_context": {"match_typed_subject_alt_names": wanted}, **trusted}
            context = {"common_tls_context": {**common, "combined_validation_context": combined}}
        found[key] = {"name": key, "match": {"tls": key}, "transport_socket": _socket("Upstream", context)}
    return list(found.values())


def token_filters(config: Config, directory: str) -> Json:
    """Filters of the cluster of the control service; empty where no token is shown."""
    if not shows_token(config):
        return []
    generic = "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic"
    credential = {"@type": generic, "credential": _sds(TOKEN, directory), "header_value_prefix": "Bearer "}
    injector: Json = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
        "credential": {"name": "envoy.http.injected_credentials.generic", "typed_config": credential},
        "overwrite": True,
    }
    codec = {"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"}
    return [
        {"name": "envoy.filters.http.credential_injector", "typed_config": injector},
        {"name": "envoy.filters.http.upstream_codec", "typed_config": codec},
    ]


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _secrets(name: str, files: Files, *, trusts: bool = False) -> dict[str, Json]:
    """`trusts`: where no authorities are named, the system's are meant."""
    made: dict[str, Json] = {}
    if files.cert is not None:
        chain, key = {"filename": str(files.cert)}, {"filename": str(files.key)}
        certificate = {"certificate_chain": chain, "private_key": key, "watched_directory": _directory(files.cert)}
        made[name] = {"tls_certificate": certificate}
    if files.ca is not None:
        context = {"trusted_ca": {"filename": str(files.ca)}, "watched_directory": _directory(files.ca)}
        made[f"{name}-ca"] = {"validation_context": context}
    elif trusts:
        made[f"{name}-ca"] = {"validation_context": {"trusted_ca": {"filename": SYSTEM_AUTHORITIES}}}
    return made


def _token(source: str, name: str, beside: Path) -> Json:
    if source == "env":
        return {"environment_variable": name}
    path = beside.parent.absolute() / name
    return {"filename": str(path), "watched_directory": _directory(path)}


def _directory(path: Path) -> Json:
    return {"path": str(path.parent)}


def _discovery(name: str, secret: Json) -> str:
    assert isinstance(secret, Mapping)
    resource = {"@type": f"{_TLS}Secret", "name": name, **secret}
    return json.dumps({"version_info": "1", "resources": [resource]}, indent=1) + "\n"


def _sds(name: str, directory: str) -> Json:
    path: Json = {"path": f"{directory}/{name}.json"}
    return {"name": name, "sds_config": {"resource_api_version": "V3", "path_config_source": path}}


def _socket(side: str, context: Mapping[str, Json]) -> Json:
    config: Json = {"@type": f"{_TLS}{side}TlsContext", **context}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}
