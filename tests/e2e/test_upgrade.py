"""From the version before to this one, in the order of docs/upgrade.md: processes first, then fragments, one by one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.former import FORMER, FRAGMENTS, FormerStack, former_stack
from e2e.stack import HOMING, until

pytestmark = pytest.mark.e2e

STALE = {
    "http-connection-manager": "access_log",
    "http-filters": "homing.strip, homing.peek, homing.session_key, homing",
    "virtual-host": "typed_per_filter_config",
}


@pytest.fixture(scope="module")
def former(short_directory: Path) -> Iterator[FormerStack]:
    with former_stack(short_directory / "former") as stack:
        yield stack


def chat(stack: FormerStack, session: str | None = None) -> httpx.Response:
    body = {"model": "qwen", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    headers = {"x-session-id": session} if session else {}
    return httpx.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers, timeout=10, trust_env=False)


def begun(stack: FormerStack, sessions: int = 9) -> dict[str, str]:
    """Session -> home."""
    answers = [chat(stack) for _ in range(sessions)]
    assert {answer.status_code for answer in answers} == {200}
    return {answer.headers["x-session-id"]: answer.headers["x-homing-replica"] for answer in answers}


def at_home(stack: FormerStack, homes: dict[str, str], decision: str = "home") -> None:
    for session, home in homes.items():
        answer = chat(stack, session)
        assert (answer.status_code, answer.headers["x-homing-replica"]) == (200, home)
        assert answer.headers["x-homing-decision"] == decision


def differences(stack: FormerStack) -> tuple[int, list[str]]:
    argv = (*HOMING, "check", "-c", str(stack.file), "--envoy-admin", f"127.0.0.1:{stack.admin}")
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""
    return ended.returncode, [line.strip() for line in ended.stdout.splitlines() if "differs" in line]


def as_said(stale: dict[str, str]) -> list[str]:
    return [
        f"Envoy differs: fragment {name} is not as this version writes it ({what}): paste it again"
        f" (homing render envoy --fragment {name})"
        for name, what in stale.items()
    ]


def test_behind_former_fragments_today_s_pickers_bring_sessions_home(former: FormerStack) -> None:
    homes = begun(former)
    assert len(set(homes.values())) == 3
    at_home(former, homes)
    assert former.fail_opens() == 0
    assert former.pickers_in_service() == 2


def test_behind_former_fragments_a_drain_is_heard(former: FormerStack) -> None:
    homes = begun(former)
    former.drain("vllm", "vllm-0")
    until(lambda: "vllm-0" not in begun(former, 6).values(), what="the pickers to hear of the drain")
    at_home(former, homes)
    former.undrain("vllm", "vllm-0")
    until(lambda: "vllm-0" in begun(former, 6).values(), what="the replica to take sessions again")


def test_former_fragments_fail_open(former: FormerStack) -> None:
    homes = begun(former)
    former.processes.kill("picker")
    former.processes.kill("standby")
    try:
        until(lambda: former.pickers_in_service() == 0, what="Envoy to know")
        at_home(former, homes, "fallback")
        at_home(former, begun(former), "fallback")
    finally:
        for name in ("picker", "standby"):
            former.start_picker(name)
        until(former.pickers_ready, what="the pickers")
        until(lambda: former.pickers_in_service() == 2, what="the pickers in Envoy")


def test_a_check_names_the_stale_fragments_until_they_are_pasted_again(former: FormerStack) -> None:
    homes = begun(former)
    missing = "Envoy differs: filters are missing: homing.strip (homing render envoy --fragment http-filters)"
    assert differences(former) == (1, [missing, *as_said(STALE)])
    left = dict(STALE)
    former.paste_again("http-filters")
    del left["http-filters"]
    assert differences(former) == (1, as_said(left))
    assert former.metric("homing_outcomes_total") == 0  # the former log is in another form
    for name in tuple(left):
        former.paste_again(name)
        del left[name]
        assert differences(former) == (1 if left else 0, as_said(left))
        at_home(former, homes)
    assert former.fail_opens() == 0
    until(lambda: former.metric("homing_outcomes_total") > 0, what="outcomes")


def test_the_former_fragments_are_whole() -> None:
    text = (FORMER / "fragments.yaml").read_text()
    assert all(f"# fragment {name} (homing " in text for name in FRAGMENTS)
