"""docs/configuration.md and the models say the same: keys, defaults, and what is allowed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from homing.core.config import parse
from homing.core.config.models import POOL_ID, FileSection
from homing.core.config.reading import allowed_by
from homing.core.config.tls import ListenerName

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| (?P<default>[^|]+) \| (?P<allowed>[^|]+) \| (?P<meaning>[^|]+) \|$", re.M)

# Defaults that are told in words.
WORDS = {
    "pools.<id>.served_name": "the pool's id",
    "pools.<id>.aliases": "none",
    "pools.<id>.replicas[].adapters": "none",
    "pools.<id>.engine": "its keys' defaults",
    "pools.<id>.engine.kv_events": "absent",
    "pools.<id>.engine.replay": "absent",
    "pools.<id>.engine.api_key": "absent",
    **{f"pools.<id>.engine.{key}": "absent" for key in ("ca", "cert", "key", "server_name")},
    "pools.<id>.repair": "its keys' defaults",
    "pools.<id>.context": "its keys' defaults",
    "pools.<id>.isolation": "its keys' defaults",
    "pools.<id>.proof": "its keys' defaults",
    "pools.<id>.template": "its keys' defaults",
    "pools.<id>.template.file": "absent",
    "pools.<id>.template.directory": "absent",
    "pools.<id>.replicas": "none",
    "pools.<id>.discovery": "absent",
    "pools.<id>.discovery.file": "absent",
    "pools.<id>.discovery.dns": "absent",
    "pools.<id>.discovery.docker": "absent",
    "pools.<id>.discovery.docker.network": "the first",
    "pools.<id>.discovery.kubernetes": "absent",
    "pools.<id>.discovery.kubernetes.port": "the only one",
    "pools.<id>.discovery.kubernetes.kubeconfig": "the pod's own account",
    "sessions": "its keys' defaults",
    "auto": "absent",
    "health": "its keys' defaults",
    "control": "its keys' defaults",
    "control.xds": "none",
    "pools.<id>.placement": "its keys' defaults",
    "tenants": "absent",
    "sessions.secret": "absent",
    "sessions.cookie": "absent",
    "sessions.signed": "absent",
    "tls": "its keys' defaults",
    "tokens": "its keys' defaults",
    "tls.client": "its keys' defaults",
    "tls.client.ca": "absent",
    "tls.client.cert": "absent",
    "tls.client.key": "absent",
    "tls.client.server_name": "absent",
    "tokens.admin": "absent",
    "tokens.fleet": "absent",
    **{f"tls.{name}": "absent" for name in get_args(ListenerName)},
    **{f"tls.{name}.client_ca": "absent" for name in get_args(ListenerName)},
}


def default(key: str, field: FieldInfo) -> str:
    if key in WORDS:
        return WORDS[key]
    if field.is_required():
        return "required"
    value = field.get_default()
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{', '.join(value)}`" if isinstance(value, tuple) else f"`{value}`"


def rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """(key, default, allowed) of every key under `model`."""
    for name, field in model.model_fields.items():
        key = prefix + name
        yield key, default(key, field), allowed_by(field)
        if get_origin(field.annotation) is dict:
            yield key + ".<id>", "required", POOL_ID.allowed
            yield from rows(get_args(field.annotation)[1], key + ".<id>.")
        elif get_origin(field.annotation) is tuple:
            item = get_args(field.annotation)[0]
            if isinstance(item, type) and issubclass(item, BaseModel):
                yield from rows(item, key + "[].")
            else:
                yield key + "[]", "-", item.__metadata__[0].func.allowed
        else:
            for inner in (field.annotation, *get_args(field.annotation)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    yield from rows(inner, key + ".")


def test_every_key_is_documented_with_its_default_and_what_is_allowed():
    documented = {(m["key"], m["default"], m["allowed"]) for m in ROW.finditer(DOCS.read_text())}
    assert sorted(documented) == sorted(rows(FileSection, ""))


def test_the_examples_are_valid():
    examples = re.findall(r"^```yaml\n(.*?)^```$", DOCS.read_text(), re.M | re.S)
    assert [len(parse(text, "docs").pools) for text in examples] == [1, 2, 2]
