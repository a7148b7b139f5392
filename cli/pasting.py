"""Fragments in a configuration that exists: each stands between two comments, `# fragment NAME` and `# end of fragment
NAME`, indented as its place wants it. What stands there is replaced by the fragment as it is now."""

from __future__ import annotations

import re
from collections.abc import Callable

_BEGIN = re.compile(r"^ *# fragment (\S+)", re.MULTILINE)
_BLOCK = re.compile(r"^( *)# fragment (\S+).*\n(?:.*\n)*? *# end of fragment \2 *\n", re.MULTILINE)


class PastingError(Exception):
    """The file cannot be filled in; the text says why."""


def filled_in(text: str, rendered: Callable[[str], str]) -> str:
    """`text` with every fragment that is marked in it; `rendered` gives one by its name, with its comments. Raises
    PastingError, and what `rendered` raises."""
    begun, whole = _BEGIN.findall(text), [block[2] for block in _BLOCK.finditer(text)]
    if not begun:
        raise PastingError("no place is marked by `# fragment NAME` and `# end of fragment NAME`")
    if begun != whole:
        open_name = next(name for name in begun if begun.count(name) != whole.count(name))
        raise PastingError(f"`# fragment {open_name}` has no `# end of fragment {open_name}` after it")
    return _BLOCK.sub(lambda block: _indented(rendered(block[2]), block[1]), text)


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))
