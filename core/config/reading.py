"""From the text of `homing.yaml` to a Config, or to every problem at once."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel, BeforeValidator, PlainValidator, ValidationError
from pydantic.fields import FieldInfo

from homing.core.config.document import MAX_FILE_BYTES, Mapping, compose, locate
from homing.core.config.models import Config, FileSection
from homing.core.config.problems import MAX_PROBLEMS, ConfigError, Path, Problem, dotted


def parse(text: str | bytes, file: str) -> Config:
    """The configuration in `text` (bytes are UTF-8); `file` is its name in the problems.

    Raises ConfigError, and nothing else, with every problem found.
    """
    root, problems = compose(_decoded(text, file), file)
    if not isinstance(root, Mapping):
        raise ConfigError([*problems, Problem(file, root.line, "", root.found, "a mapping with the key pools")])
    section: FileSection | None = None
    found = list(problems)
    try:
        section = FileSection.model_validate(root.plain())
    except ValidationError as e:
        found += [
            _problem(error["loc"], error["type"], str(error.get("ctx", {}).get("error", "")), root, file)
            for error in e.errors(include_url=False)
        ]
    if section is None or found:
        raise ConfigError(_in_order(found))
    return section.config()


def _decoded(text: str | bytes, file: str) -> str:
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError([Problem(file, 1, "", f"{len(text)} bytes", f"at most {MAX_FILE_BYTES} bytes")])
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = text.count(b"\n", 0, e.start) + 1
        raise ConfigError([Problem(file, line, "", f"the byte 0x{text[e.start]:02x}", "UTF-8 text")]) from None


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By line, the first of each place, and not more than anyone reads."""
    firsts = {(p.line, p.key): p for p in reversed(problems)}
    ordered = sorted(firsts.values(), key=lambda p: p.line or 0)
    return ordered[:MAX_PROBLEMS]


def _problem(path: Path, kind: str, refusal: str, root: Mapping, file: str) -> Problem:
    """One of pydantic's errors. `kind` is its type; `refusal` the text of our own error, where it was one."""
    if kind == "value_error" and len(path) == 3 and path[-1] == "[key]":
        path = path[:-1]  # pydantic's name for "the key of this entry"; only pools have keys to check
        line, _ = locate(root, path)
        return Problem(file, line, dotted(path), f"the pool id {dotted(path[1:])}", refusal)
    line, node = locate(root, path)
    if kind == "extra_forbidden":
        return Problem(file, line, dotted(path), "an unknown key", ", ".join(model_at(path[:-1]).model_fields))
    found = "nothing" if node is None else node.found
    if kind == "missing":
        return Problem(file, line, dotted(path), found, allowed_by(model_at(path[:-1]).model_fields[str(path[-1])]))
    return Problem(file, line, dotted(path), found, refusal or _section(model_at(path)))


def allowed_by(field: FieldInfo) -> str:
    """What the kind of a key allows, in words; a section allows its keys."""
    for mark in field.metadata:
        if isinstance(mark, PlainValidator | BeforeValidator):
            return str(getattr(mark.func, "allowed", ""))
    section = _model_in(field.annotation)
    return _section(section) if section else "text"


def _section(model: type[BaseModel]) -> str:
    return "a mapping with keys of " + ", ".join(model.model_fields)


def model_at(path: Path) -> type[BaseModel]:
    """The model whose keys stand under `path`."""
    model: type[BaseModel] = FileSection
    for depth, part in enumerate(path):
        is_pool_id = depth == 1 and path[0] == "pools"  # a pool may be called like a key
        if isinstance(part, str) and not is_pool_id and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)
