"""The yardstick's core knows no clock, no socket and no loop: what these modules may import is a decision."""

import ast
from pathlib import Path

import pytest

SIM = Path(__file__).parents[2] / "sim"
PURE = (
    "batching", "conversations", "detokenizer", "engine", "kv_events", "logprobs", "paced", "prefix_cache", "sequence",
    "slots", "time_model", "tokenizer", "vectors", "words",
)  # fmt: skip
ALLOWED = {
    "__future__", "array", "codecs", "collections", "dataclasses", "enum", "heapq", "itertools", "math", "msgspec",
    "re", "sys", "typing", "xxhash",
}  # fmt: skip


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_imports_only_pure_ones(name):
    allowed = ALLOWED | {f"homing.sim.{pure}" for pure in PURE}
    foreign = {m for m in imports(SIM / f"{name}.py") if m not in allowed and m.split(".")[0] not in ALLOWED}
    assert foreign == set()
