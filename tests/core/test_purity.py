"""core/ is the domain: what it may import is a decision, and this test holds it."""

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "core"
ALLOWED = {
    "__future__", "array", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "heapq", "hmac",
    "ipaddress", "itertools", "json", "math", "re", "struct", "types", "typing", "typing_extensions", "msgspec",
    "pydantic", "xxhash", "yaml", "zlib",
}  # fmt: skip


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_core_imports_only_pure_modules(path):
    foreign = {m for m in imports(path) if m.split(".")[0] not in ALLOWED and not m.startswith("homing.core")}
    assert foreign == set()
