"""A file of replicas: what `pools.<id>.discovery.file` points to. A list like `replicas` of the pool, alone or under
that key."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from homing.core.config.document import MAX_FILE_BYTES, Mapping, compose, fastest_loader
from homing.core.config.models import ReplicaConfig
from homing.core.config.problems import ConfigError, Problem, dotted

_REPLICAS = "a list of replicas (id, address, weight, dp_size), each id and address once"
MAX_REPLICAS = 1000


def parse_replicas(data: bytes, file: str) -> tuple[ReplicaConfig, ...]:
    """Raises ConfigError with the first problem."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([Problem(file, 1, "", f"more than {MAX_FILE_BYTES} bytes", _REPLICAS)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError([Problem(file, 1, "", "bytes that are no text", "UTF-8 text")]) from None
    root, problems = compose(text, file, fastest_loader())
    node = root.get("replicas") if isinstance(root, Mapping) else root
    try:
        found = TypeAdapter(tuple[ReplicaConfig, ...]).validate_python(None if node is None else node.plain())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        allowed = str(first.get("ctx", {}).get("error") or _REPLICAS)
        raise ConfigError([Problem(file, root.line, dotted(first["loc"]), "something else", allowed)]) from None
    ids = [name for r in found for name in {r.id, *(rank.id for rank in r.replicas())}]
    distinct = len({str(r.address) for r in found}) == len(found) <= MAX_REPLICAS
    if problems or not distinct or len(set(ids)) < len(ids):
        raise ConfigError(problems or [Problem(file, root.line, "", "an id or address twice", _REPLICAS)])
    return found
