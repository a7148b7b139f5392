"""docs/verify.md has every option and every finding, and no others."""

import re
from pathlib import Path

from homing.cli.verify import command
from homing.core.verify import diagnosis

DOCS = Path(__file__).parents[3] / "docs" / "verify.md"
MODULES = Path(diagnosis.__file__).parent


def section(name: str) -> str:
    return DOCS.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]


def test_every_option_is_documented():
    told = {name for cell in first_cells(section("Options")) for name in re.findall(r"`(--?[a-z-]+)", cell)}
    own = {min(option.opts, key=len) if "-c" in option.opts else option.opts[0] for option in command.params}
    assert told == own


def test_every_finding_is_documented_in_order():
    told = re.findall(r"`(\w+)`", "".join(first_cells(section("What it finds"))))
    assert told == [each.__module__.rpartition(".")[2] for each in diagnosis.DIAGNOSES]


def test_a_finding_is_called_as_its_module_is():
    for each in diagnosis.DIAGNOSES:
        name = each.__module__.rpartition(".")[2]
        assert f'"{name}"' in (MODULES / f"{name}.py").read_text()
