"""YAML with its line numbers: a tree of nodes, from a file that may be hostile.

Read as YAML 1.2's core schema (so `no`, `on` and `10:20` are text) and without tags, since a configuration needs
neither dates nor Python objects. Depth and size are bounded after the expansion of aliases, so neither a
cycle nor a "billion laughs" file costs more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from homing.core.config.problems import ConfigError, Path, Problem, dotted, quoted

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_NODES = 200_000  # after the expansion of aliases; a replica takes seven

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LONGEST_NUMBER = 32  # characters; longer ones are text, which no numeric key takes


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    value: bool | int | float | str | None
    text: str
    size: int = 1
    height: int = 0

    @property
    def found(self) -> str:
        if self.value is None:
            return "nothing"
        return quoted(self.text) if isinstance(self.value, str) else self.text

    def plain(self) -> Plain:
        return self.value


@dataclass(frozen=True, slots=True)
class Sequence:
    line: int
    items: tuple[Node, ...]
    size: int
    height: int

    @property
    def found(self) -> str:
        return f"a list of {len(self.items)}" if self.items else "an empty list"

    def plain(self) -> Plain:
        return [item.plain() for item in self.items]


@dataclass(frozen=True, slots=True)
class Mapping:
    line: int
    entries: dict[str, tuple[int, Node]]  # key -> (the key's line, the value)
    size: int
    height: int

    @property
    def found(self) -> str:
        return "a mapping" if self.entries else "an empty mapping"

    def plain(self) -> Plain:
        return {key: node.plain() for key, (_, node) in self.entries.items()}

    def get(self, key: str) -> Node | None:
        return self.entries[key][1] if key in self.entries else None


@dataclass(frozen=True, slots=True)
class Unusable:
    """Stands for an alias that leads nowhere. Its problem has been told; nothing more is to be said of it."""

    line: int
    size: int = 1
    height: int = 0
    found: str = "nothing"

    def plain(self) -> Plain:
        return None


Node = Scalar | Sequence | Mapping | Unusable


def locate(root: Node, path: Path) -> tuple[int, Node | None]:
    """The line of `path` and the node there; for a missing one, the line of what should hold it, and None."""
    line, node = root.line, root
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str) and part in node.entries:
            line, node = node.entries[part]
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            line = node.line
        else:
            return line, None
    return line, node


Loader = type[yaml.SafeLoader] | type[yaml.CSafeLoader]


def fastest_loader() -> Loader:
    """libyaml's, some ten times faster, where PyYAML was built with it."""
    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def compose(text: str, file: str, loader: Loader) -> tuple[Node, tuple[Problem, ...]]:
    """The tree of `text`, and the problems that do not hide the rest (duplicate keys, cycles, tags).

    Raises ConfigError when there is no tree to go on with: bad syntax, too deep, too large, nothing at all.
    """
    odd = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if odd is not None:
        line = text.count("\n", 0, odd.start()) + 1
        raise ConfigError([Problem(file, line, "", f"the character {quoted(odd.group())}", "printable text")])
    composer = _Composer(file, yaml.parse(text, Loader=loader))
    try:
        return composer.document(), tuple(composer.problems)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        found = f"YAML that does not parse ({' '.join((e.problem or '').split())[:160]})"
        raise ConfigError([Problem(file, mark.line + 1 if mark else 1, "", found, "valid YAML")]) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # The parser in Python (used where there is no libyaml) lets out-of-range escapes through as these.
        raise ConfigError([Problem(file, 1, "", "YAML that does not parse", "valid YAML")]) from None


class _Composer:
    """Nodes from parser events. Recursion is bounded by MAX_DEPTH, which is why PyYAML's own composer is not used."""

    def __init__(self, file: str, events: Iterator[yaml.Event]) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._events = events
        self._anchors: dict[str, Node | None] = {}  # None: still open, so an alias to it would be a cycle

    def document(self) -> Node:
        next(self._events)  # the stream's start
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise ConfigError([Problem(self.file, 1, "", "an empty file", "a mapping with the key pools")])
        root = self._node(next(self._events), ())
        next(self._events)  # the document's end
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._report(event, (), "a second YAML document", "one document in a file")
        return root

    def _node(self, event: yaml.Event, path: Path) -> Node:
        if isinstance(event, yaml.AliasEvent):
            node = self._aliased(event, event.anchor or "", path)
        else:
            assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)  # what else a parser gives here
            if event.tag is not None and event.tag != "!":
                self._report(event, path, f"the tag {quoted(event.tag)}", "values without tags")
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            node = self._built(event, path)
            if event.anchor is not None:
                self._anchors[event.anchor] = node
        if len(path) + node.height > MAX_DEPTH:
            raise self._refusal(event, path, f"nesting deeper than {MAX_DEPTH}", f"at most {MAX_DEPTH} levels")
        return node

    def _aliased(self, event: yaml.Event, anchor: str, path: Path) -> Node:
        node = self._anchors.get(anchor)
        if node is not None:
            return node
        if anchor in self._anchors:
            self._report(event, path, f"a cycle (the alias {quoted(anchor)} stands within its anchor)", "no cycles")
        else:
            self._report(event, path, f"the alias {quoted(anchor)} of no anchor above", "aliases of anchors above")
        return Unusable(_line(event))

    def _built(self, event: yaml.Event, path: Path) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.tag is None
            return Scalar(_line(event), resolved(event.value) if plain else event.value, event.value)
        if len(path) >= MAX_DEPTH:
            raise self._refusal(event, path, f"nesting deeper than {MAX_DEPTH}", f"at most {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, path)
        return self._mapping(event, path)

    def _sequence(self, start: yaml.Event, path: Path) -> Sequence:
        items: list[Node] = []
        size = 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
            size = self._grown(size, items[-1], event, path)
        return Sequence(_line(start), tuple(items), size, 1 + max((n.height for n in items), default=0))

    def _mapping(self, start: yaml.Event, path: Path) -> Mapping:
        entries: dict[str, tuple[int, Node]] = {}
        size, height = 1, 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path)
            inner = path if key is None else (*path, key)
            node = self._node(next(self._events), inner)
            size, height = self._grown(size, node, event, path), max(height, node.height)
            if key is None:
                continue
            if key in entries:
                found = f"the key again (first on line {entries[key][0]})"
                self._report(event, inner, found, "each key once")
            else:
                entries[key] = (_line(event), node)
        return Mapping(_line(start), entries, size, 1 + height)

    def _key(self, event: yaml.Event, path: Path) -> str | None:
        """Keys are text as written, so that a pool may be called `7`. None for a key that is a list or a mapping."""
        node = self._node(event, (*path, "?"))  # a step of its own: keys of keys of keys count as depth
        if isinstance(node, Scalar):
            return node.text
        self._report(event, path, f"{node.found} as a key", "text as a key")
        return None

    def _grown(self, size: int, node: Node, event: yaml.Event, path: Path) -> int:
        size += 1 + node.size
        if size > MAX_NODES:
            allowed = f"at most {MAX_NODES} values, those behind aliases counted each time"
            raise self._refusal(event, path, "more values than a configuration has", allowed)
        return size

    def _refusal(self, event: yaml.Event, path: Path, found: str, allowed: str) -> ConfigError:
        return ConfigError([*self.problems, Problem(self.file, _line(event), dotted(path), found, allowed)])

    def _report(self, event: yaml.Event, path: Path, found: str, allowed: str) -> None:
        self.problems.append(Problem(self.file, _line(event), dotted(path), found, allowed))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def resolved(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar (YAML 1.2, 10.3.2; without hexadecimal and octal)."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _INFINITE.fullmatch(text) else text
