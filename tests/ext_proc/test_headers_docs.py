"""docs/headers.md names every header and every reason that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from homing.core.config.models import Sessions
from homing.core.placement.decision import Reason
from homing.ext_proc.routed import DESTINATION, RANK

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "headers.md").read_text()
TEMPLATES = "".join(path.read_text() for path in sorted((ROOT / "envoy").glob("*.j2")))
CODE = "".join(path.read_text() for path in sorted((ROOT / "ext_proc").glob("*.py")))


def section(title: str) -> str:
    return DOCS.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_the_reasons_are_the_pickers_and_envoys_own():
    envoys = re.findall(r"header: \{key: x-homing-decision, value: (\w+)\}", TEMPLATES)
    assert envoys == ["fallback"]
    assert sorted(first_column(section("Reasons"))) == sorted([*Reason, *envoys])


def test_every_header_of_ours_is_documented():
    ours = set(re.findall(r"x-homing-[a-z]+(?:-[a-z]+)*", (TEMPLATES + CODE).lower()))
    documented = {name for name in first_column(DOCS) if name.startswith("x-")}
    others = {"x-amzn-sagemaker-new-session-id", "x-amzn-sagemaker-closed-session-id"}
    assert documented == ours | others | {DESTINATION, RANK, "x-session-id", "x-session-close"}


def test_the_answers_headers_are_those_of_the_virtual_host():
    templates = ("virtual_host.yaml.j2", "routes.yaml.j2")
    set_there = {
        name
        for template in templates
        for name in re.findall(r"header: \{key: ([a-z-]+)", (ROOT / "envoy" / template).read_text())
    }
    assert set(first_column(section("What clients get"))) == set_there - {"content-type"}


def test_the_session_headers_are_the_defaults():
    text = section("What clients send")
    paragraph = text[text.index("By default a session") : text.index("They go on")]
    named = ["x-session-id", *re.findall(r"`([a-z_-]+)`", paragraph)]
    assert named == [name for header in Sessions().headers for name in header.split("+")]


def test_the_picker_gets_every_header_that_it_reads():
    """Envoy sends it no others (forward_rules)."""
    rules = TEMPLATES[TEMPLATES.index("allowed_headers") :]
    prefixes = tuple(re.findall(r"- prefix: ([a-z-]+)", rules[:600]))
    exact = set(re.findall(r'- exact: "?([a-z:-]+)"?', rules[:600]))
    read = set(re.findall(r'headers\.get\("([a-z:-]+)"', CODE)) | set(re.findall(r'"([a-z-]+)" in headers', CODE))
    of_answers, of_its_own_api = {":status", "content-encoding"}, {"authorization", "etag"}
    assert {"x-session-id", ":path"} <= read
    assert {name for name in read if not name.startswith(prefixes) and name not in exact} == (
        of_answers | of_its_own_api
    )
