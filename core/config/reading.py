"""From the text of `homing.yaml` to a Config, or to every problem at once."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel, BeforeValidator, PlainValidator, ValidationError
from pydantic.fields import FieldInfo

from homing.core.config.document import MAX_FILE_BYTES, Mapping, Node, Unusable, compose, fastest_loader, locate
from homing.core.config.models import Config, FileSection
from homing.core.config.problems import MAX_PROBLEMS, ConfigError, Path, Problem, dotted
from homing.core.config.relations import broken_relations
from homing.core.config.secret import NotShownError
from homing.core.config.suggestion import nearest

NEEDED = "a mapping with the key pools"


def parse(text: str | bytes, file: str) -> Config:
    """The configuration in `text` (bytes are UTF-8); `file` is its name in the problems.

    Raises ConfigError, and nothing else, with every problem found.
    """
    root, problems = compose(_decoded(text, file), file, fastest_loader())
    if not isinstance(root, Mapping):
        raise ConfigError([*problems, Problem(file, root.line, "", root.found, NEEDED)])
    problems += tuple(broken_relations(root, file))
    try:
        section = FileSection.model_validate(root.plain())
    except ValidationError as e:
        raise ConfigError(_all(problems, e, root, file)) from None
    if problems:
        raise ConfigError(_in_order(problems, file, more=0))
    return section.config()


def _decoded(text: str | bytes, file: str) -> str:
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError([Problem(file, 1, "", f"more than {MAX_FILE_BYTES} bytes", f"up to {MAX_FILE_BYTES} bytes")])
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = text.count(b"\n", 0, e.start) + 1
        raise ConfigError([Problem(file, line, "", f"the byte 0x{text[e.start]:02x}", "UTF-8 text")]) from None


def _all(problems: tuple[Problem, ...], e: ValidationError, root: Mapping, file: str) -> list[Problem]:
    """What the models refuse, added to `problems`. Only those to be shown are put into words."""
    placed = [(*locate(root, _place(error["loc"], error["type"])), error) for error in e.errors(include_url=False)]
    placed = [(line, node, error) for line, node, error in placed if not isinstance(node, Unusable)]
    placed.sort(key=lambda p: p[0])
    worded = [
        _problem(error["loc"], error["type"], error.get("ctx", {}).get("error"), (line, node), file)
        for line, node, error in placed[:MAX_PROBLEMS]
    ]
    return _in_order((*problems, *worded), file, more=len(placed) - len(worded))


def _in_order(problems: tuple[Problem, ...], file: str, more: int) -> list[Problem]:
    ordered = sorted(problems, key=lambda p: p.line or 0)
    more += len(ordered[MAX_PROBLEMS:])
    shown = ordered[:MAX_PROBLEMS]
    return [*shown, Problem(file, shown[-1].line, "", f"{more} more problems", "none")] if more else shown


def _is_pool_id(path: Path, kind: str) -> bool:
    """Whether it is the id that is refused: pydantic adds "[key]" to the place of a mapping's key."""
    return kind == "value_error" and len(path) == 3 and path[0] == "pools" and path[-1] == "[key]"


def _place(path: Path, kind: str) -> Path:
    return path[:-1] if _is_pool_id(path, kind) else path


def _problem(path: Path, kind: str, error: object, at: tuple[int, Node | None], file: str) -> Problem:
    """One of pydantic's errors. `kind` is its type; `error` what our own kinds raise, None for pydantic's."""
    line, node = at
    key = dotted(_place(path, kind))
    refusal = str(error or "")
    found = "nothing" if node is None else "something else" if isinstance(error, NotShownError) else node.found
    if _is_pool_id(path, kind):
        return Problem(file, line, key, f"the pool id {dotted(path[1:2])}", refusal)
    if kind == "extra_forbidden":
        keys = tuple(model_at(path[:-1]).model_fields)
        meant = nearest(str(path[-1]), keys)
        hint = f" (did you mean {meant}?)" if meant else ""
        return Problem(file, line, key, f"an unknown key{hint}", ", ".join(keys))
    if kind == "missing":
        return Problem(file, line, key, found, allowed_by(model_at(path[:-1]).model_fields[str(path[-1])]))
    return Problem(file, line, key, found, refusal or _section(model_at(path)))


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
