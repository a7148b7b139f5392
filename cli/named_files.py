"""What `homing check` finds out about files that the file names: certificates, their keys, tokens and other secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homing.core.config import Config
    from homing.core.config.models import EngineConfig
    from homing.core.config.secret import SecretRef
    from homing.core.config.tls import ClientTls, ServerTls


def unusable(config: Config, file: Path) -> tuple[str, ...]:
    """One line for each that cannot be used on this machine, with its key: not there, not to be read, too short; and
    certificates that have run out or do not fit their keys. `file`: the one that names them. Nothing of what is in
    them is said."""
    from homing.control.certificates import CertificateError, Files, tried
    from homing.control.secrets import SecretError, resolve
    from homing.control.tokens import MIN_BYTES

    found = {}
    for key, ref in _named(config):
        try:
            resolve(ref, file, {}, MIN_BYTES if key.startswith("tokens.") else 1)
        except SecretError as error:
            found[key] = str(error)
    for key, said in _certificates(config):
        if not any(each.startswith(f"{key}.") for each in found):
            try:
                tried(Files.of(said, file))
            except CertificateError as error:
                found[key] = str(error)
    return tuple(f"{key}: {why}" for key, why in found.items())


def _named(config: Config) -> Iterator[tuple[str, SecretRef]]:
    """Every `file:PATH` of the file, with its key."""
    from homing.core.config.keys import Keys
    from homing.core.config.secret import SecretRef

    def within(key: str, value: object) -> Iterator[tuple[str, SecretRef]]:
        if isinstance(value, SecretRef) and value.source == "file":
            yield key, value
        elif isinstance(value, tuple) and key != "pools":  # these have ids, below
            for index, each in enumerate(value):
                yield from within(f"{key}[{index}]", each)
        elif isinstance(value, Keys):
            for name in type(value).model_fields:
                yield from within(f"{key}.{name}" if key else name, getattr(value, name))

    yield from within("", config)
    for pool in config.pools:
        yield from within(f"pools.{pool.id}", pool)


def _certificates(config: Config) -> Iterator[tuple[str, ServerTls | ClientTls | EngineConfig]]:
    listeners: Mapping[str, ServerTls | None] = {
        name: getattr(config.tls, name) for name in ("listen", "api", "xds", "picker", "picker_http")
    }
    yield from ((f"tls.{name}", said) for name, said in listeners.items() if said is not None)
    yield "tls.client", config.tls.client
    yield from ((f"pools.{pool.id}.engine", pool.engine) for pool in config.pools)
