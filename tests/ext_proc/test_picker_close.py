"""A session ends when its client says so, and only then."""

from __future__ import annotations

import json

import pytest
from picking import Picking, closing, known, unnamed


def test_a_session_is_closed_when_its_last_turn_has_ended(picking: Picking):
    picking.route()
    last = closing(picking, "served")
    assert dict(last.set_headers)["x-homing-decision"] == b"home"
    assert known(picking) == 1
    last.release()
    assert known(picking) == 0
    assert picking.picker.counts.closed == {"client": 1}


def test_a_close_without_a_pool_forgets_the_session_in_all(picking: Picking):
    for model in ("served", "other"):
        picking.route(model=model)
    picking.route(b"another")
    closing(picking, None).release()
    assert known(picking) == 1
    closing(picking, None).release()
    assert picking.picker.counts.closed == {"client": 1}


def test_nobody_closes_another_tenants_session():
    picking = Picking(tenant_header="x-tenant-id")
    picking.route(x_tenant_id=b"a")
    for tenant, left in ((b"b", 1), (b"", 1), (b"a", 0)):
        picking.route(model=None, x_tenant_id=tenant, x_session_close=b"true").release()
        assert known(picking) == left


@pytest.mark.parametrize("value", [b"", b"false", b"1", b"yes"])
def test_only_true_closes(picking: Picking, value: bytes):
    picking.route()
    picking.route(x_session_close=value).release()
    assert known(picking) == 1


def test_a_session_that_only_the_body_names_is_closed_too(recognising: Picking):
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "session_id": "in-body"}).encode()
    unnamed(recognising, body)
    assert known(recognising) == 1
    unnamed(recognising, body, **{"x-session-close": b"true"})
    assert known(recognising) == 0


def test_a_new_session_that_is_closed_at_once_leaves_nothing(recognising: Picking):
    recognising.route(b"uuid", given=False, x_session_close=b"true").release()
    assert known(recognising) == 0
