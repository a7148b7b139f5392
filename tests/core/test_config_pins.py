"""Where pins are kept, as the file says it."""

from __future__ import annotations

import pytest

from homing.core.config import ConfigError, Problem, parse
from homing.core.config.secret import SecretRef

POOLS = "pools: {p: {replicas: [{id: a, address: '10.0.0.1:8000'}]}}\n"


def problems(sessions: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as refused:
        parse(POOLS + sessions, "f")
    return tuple(refused.value.problems)


def test_memory_is_the_default_and_needs_no_secret():
    sessions = parse(POOLS, "f").sessions
    assert (sessions.pins, sessions.secret) == ("memory", None)
    assert parse(POOLS + "sessions: {pins: memory}", "f").sessions == sessions


def test_a_store_needs_a_secret():
    assert parse(POOLS + "sessions: {pins: env:REDIS_URL, secret: file:s}", "f").sessions.pins == SecretRef(
        "env", "REDIS_URL"
    )
    (problem,) = problems("sessions: {pins: 'redis://cache'}")
    assert problem == Problem("f", 2, "sessions.pins", "a store, and no sessions.secret", "with sessions.secret")


def test_a_url_with_a_password_is_refused_and_not_shown():
    (problem,) = problems("sessions: {pins: 'redis://:opensesame@cache', secret: env:S}")
    assert problem.key == "sessions.pins"
    assert "opensesame" not in str(problem)
