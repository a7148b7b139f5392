"""The Python of the client's pages does what the pages say: it runs, and its turns carry one id a conversation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from client.gateway import Gateway

ROOT = Path(__file__).parents[2]
PAGES = ("docs/clients.md", "client/README.md")
SHOWN_URL = "http://127.0.0.1:8080"


def programs() -> dict[str, str]:
    """Every Python block that needs no more than this repository's tests have."""
    blocks = {
        f"{page}-{number}": block
        for page in PAGES
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S))
    }
    return {name: block for name, block in blocks.items() if "langchain" not in block}


PROGRAMS = programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_shown_program_keeps_its_sessions(gateway: Gateway, name: str) -> None:
    assert SHOWN_URL in PROGRAMS[name]
    gateway.go_on.set()
    program = PROGRAMS[name].replace(SHOWN_URL, gateway.origin)
    done = subprocess.run(
        (sys.executable, "-c", program),
        env={**os.environ, "PYTHONPATH": str(ROOT / "client" / "src"), "NO_PROXY": "*"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    turns = Counter(seen.session for seen in gateway.seen if seen.method == "POST")
    begun = turns.pop(None, 0)
    if begun:  # each session that the gateway named was taken up again
        assert set(turns) == {f"issued-{number + 1}" for number in range(begun)}
    else:  # the client's own id
        assert list(turns.values()) == [2]


def test_all_pages_show_programs() -> None:
    assert {name.rpartition("-")[0] for name in PROGRAMS} == set(PAGES)
