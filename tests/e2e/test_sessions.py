"""Sessions seen and ended from the command line, through `homing up`, its API and its pickers."""

from __future__ import annotations

import json
import subprocess

import httpx
import pytest
from e2e.stack import HOMING, until
from e2e.up import Up

pytestmark = pytest.mark.e2e

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}


def turn(up: Up, session: str, tenant: str = "") -> httpx.Response:
    headers = {"x-session-id": session} | ({"x-tenant": tenant} if tenant else {})
    url = f"http://127.0.0.1:{up.listen}/v1/chat/completions"
    return httpx.post(url, json=BODY, headers=headers, trust_env=False, timeout=10)


def test_a_session_is_shown_and_ended(up: Up) -> None:
    replica = turn(up, "c1/a1").headers["x-homing-replica"]
    (shown,) = json.loads(up.homing("sessions", "c1/a1", "--json"))["sessions"]
    assert (shown["pool"], shown["replica"], shown["pinned"]) == ("p", replica, False)
    listed = json.loads(up.homing("sessions", "--json"))
    assert shown["session"] in {each["session"] for each in listed["sessions"]}
    assert "c1/a1" not in json.dumps(listed)
    assert up.homing("sessions", "c1/a1", "--close").splitlines()[-1] == "closed"
    argv = (*HOMING, "sessions", "-c", str(up.file), "c1/a1")
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "no picker knows this session\n")
    assert turn(up, "c1/a1").headers["x-homing-decision"] == "hash"


def test_no_tenant_sees_or_ends_anothers_session(up: Up) -> None:
    up.write(list("abcd"), tenants={"header": "x-tenant", "trusted": True})

    def known(tenant: str) -> int:
        return len(up.api_json(f"/api/sessions/s?tenant={tenant}")["sessions"])

    until(lambda: turn(up, "s", "acme").status_code == 200 and known("acme") == 1, 20, "the tenants to be known")
    assert turn(up, "s", "acme").headers["x-homing-decision"] == "home"
    url = f"http://127.0.0.1:{up.api}/api/sessions/s"
    for tenant in ("", "other"):
        httpx.delete(url, params={"tenant": tenant}, trust_env=False).raise_for_status()
        closing = {"x-session-id": "s", "x-session-close": "true", "x-tenant": tenant}
        httpx.get(f"http://127.0.0.1:{up.listen}/v1/models", headers=closing, trust_env=False).raise_for_status()
    assert known("acme") == 1
    assert turn(up, "s", "acme").headers["x-homing-decision"] == "home"
