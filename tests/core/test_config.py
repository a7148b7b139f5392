"""What a good file means."""

import pytest
from pydantic import ValidationError

from homing.core.config import (
    Address,
    Config,
    HealthCheck,
    PoolConfig,
    ReplicaConfig,
    Sessions,
    Tenants,
    parse,
)
from homing.core.fleet import Fleet, Pool, Replica, State

SMALLEST = "pools: {a: {replicas: [{id: r, address: '10.0.0.1:8000'}]}}"

WHOLE = """\
listen: 0.0.0.0:80
admin: 127.0.0.2:81
xds: "[::1]:82"
api: 127.0.0.1:83
expose_decisions: true
pools:
  qwen-72b:
    served_name: Qwen2.5-72B-Instruct
    aliases: [chat, gpt-4o]
    replicas:
    - {id: gpu-a, address: 10.0.1.11:8000}
    - {id: gpu-b, address: vllm-b.internal:8000, weight: 2}
    hash: maglev
  llama-8b:
    replicas: [{id: gpu-a, address: "[fd00::11]:8000"}]
sessions: {headers: [X-Session-Id, x-mine], ttl_s: 60, max: 10}
tenants: {header: X-Tenant-Id, trusted: true}
health: {path: /ping?deep=1, interval_s: 0.5, timeout_s: 2, unhealthy_threshold: 3, healthy_threshold: 4}
"""


def test_every_key_is_read():
    assert parse(WHOLE, "f") == Config(
        listen=Address("0.0.0.0", 80),
        admin=Address("127.0.0.2", 81),
        xds=Address("::1", 82),
        api=Address("127.0.0.1", 83),
        expose_decisions=True,
        pools=(
            PoolConfig(
                id="qwen-72b",
                served_name="Qwen2.5-72B-Instruct",
                aliases=("chat", "gpt-4o"),
                replicas=(
                    ReplicaConfig(id="gpu-a", address=Address("10.0.1.11", 8000)),
                    ReplicaConfig(id="gpu-b", address=Address("vllm-b.internal", 8000), weight=2),
                ),
                hash="maglev",
            ),
            PoolConfig(
                id="llama-8b",
                served_name="llama-8b",
                replicas=(ReplicaConfig(id="gpu-a", address=Address("fd00::11", 8000)),),
            ),
        ),
        sessions=Sessions(headers=("x-session-id", "x-mine"), ttl_s=60.0, max=10),
        tenants=Tenants(header="x-tenant-id", trusted=True),
        health=HealthCheck(
            path="/ping?deep=1", interval_s=0.5, timeout_s=2.0, unhealthy_threshold=3, healthy_threshold=4
        ),
    )


def test_everything_but_pools_has_a_default():
    config = parse(SMALLEST, "f")
    assert (str(config.listen), str(config.admin), str(config.xds), str(config.api)) == (
        "127.0.0.1:8080",
        "127.0.0.1:9901",
        "127.0.0.1:18000",
        "127.0.0.1:8600",
    )
    assert config.expose_decisions is False
    assert (config.sessions.ttl_s, config.sessions.max) == (1800.0, 200_000)
    assert config.sessions.headers == (
        "x-session-id",
        "x-amzn-sagemaker-session-id",
        "x-claude-code-session-id+x-claude-code-agent-id",
        "session-id",
        "session_id",
        "x-session-affinity",
        "x-smg-routing-key",
        "x-dynamo-session-id",
        "x-aibrix-session-key",
    )
    assert config.tenants is None
    assert config.health == HealthCheck(
        path="/health", interval_s=1.0, timeout_s=1.0, unhealthy_threshold=2, healthy_threshold=1
    )
    assert config.pools[0].hash == "ring"
    assert config.pools[0].replicas[0].weight == 1


def test_the_fleet_is_as_written_and_nobody_is_ready_yet():
    joining = {"state": State.JOINING, "healthy": False}
    assert parse(WHOLE, "f").fleet() == Fleet(
        (
            Pool(
                "qwen-72b",
                "Qwen2.5-72B-Instruct",
                ("chat", "gpt-4o"),
                "maglev",
                (
                    Replica("gpu-a", "10.0.1.11:8000", 1, **joining),
                    Replica("gpu-b", "vllm-b.internal:8000", 2, **joining),
                ),
            ),
            Pool("llama-8b", "llama-8b", (), "ring", (Replica("gpu-a", "[fd00::11]:8000", 1, **joining),)),
        )
    )


def test_a_file_that_says_the_same_is_equal_and_hashes_equal():
    spelled_out = "# nothing new\nhealth: {path: /health, interval_s: 1}\nlisten: 127.0.0.1:8080\n" + SMALLEST
    assert parse(spelled_out, "other.yaml") == parse(SMALLEST, "f")
    assert hash(parse(spelled_out, "other.yaml")) == hash(parse(SMALLEST, "f"))


@pytest.mark.parametrize(
    ("written", "changed"),
    [("r, address", "s, address"), ("8000", "8001"), ("{a:", "{b:"), ("pools", "sessions: {max: 5}\npools")],
)
def test_a_file_that_says_something_else_is_unequal(written, changed):
    assert parse(SMALLEST.replace(written, changed), "f") != parse(SMALLEST, "f")


def test_a_config_cannot_be_changed():
    with pytest.raises(ValidationError):
        parse(SMALLEST, "f").expose_decisions = True


@pytest.mark.parametrize("text", [SMALLEST.encode(), b"\xef\xbb\xbf" + SMALLEST.encode(), "\ufeff" + SMALLEST])
def test_bytes_and_a_byte_order_mark_are_read(text):
    assert parse(text, "f") == parse(SMALLEST, "f")


def test_an_alias_stands_for_what_its_anchor_names():
    text = """
pools:
  a: {replicas: &both [{id: r, address: "h:1"}, {id: s, address: "h:2"}]}
  b: {replicas: *both}
"""
    config = parse(text, "f")
    assert config.pools[1].replicas == config.pools[0].replicas


def test_words_that_yaml_1_1_takes_for_switches_and_numbers_are_text():
    pool = parse("pools: {no: {aliases: [on, 10:20, 2024-01-01], replicas: [{id: yes, address: h:1}]}}", "f").pools[0]
    assert (pool.id, pool.aliases, pool.replicas[0].id) == ("no", ("on", "10:20", "2024-01-01"), "yes")


def test_keys_are_text_even_when_they_look_like_numbers():
    assert parse("pools: {7: {replicas: [{id: r, address: h:1}]}}", "f").pools[0].id == "7"


def test_pools_may_be_called_like_keys():
    text = "pools: {replicas: {replicas: [{id: r, address: h:1}]}, aliases: {replicas: [{id: r, address: h:1}]}}"
    assert [p.id for p in parse(text, "f").pools] == ["replicas", "aliases"]


def test_the_largest_pool_is_read():
    replicas = ", ".join(f"{{id: r{i}, address: '10.0.{i // 250}.{i % 250}:8000'}}" for i in range(1000))
    assert len(parse(f"pools: {{a: {{replicas: [{replicas}]}}}}", "f").pools[0].replicas) == 1000


def test_data_parallel_ranks_are_replicas_of_one_address():
    config = parse("pools: {p: {replicas: [{id: a, address: h:1, weight: 2, dp_size: 3}, {id: b, address: h:2}]}}", "f")
    first, *_, last = replicas = config.pools[0].pool().replicas
    assert [(r.id, r.address, r.weight, r.rank) for r in replicas] == [
        ("a-0", "h:1", 2, 0), ("a-1", "h:1", 2, 1), ("a-2", "h:1", 2, 2), ("b", "h:2", 1, None),
    ]  # fmt: skip
    assert (first.host, last.host) == ("a", "b")
    assert [(h.id, h.address, h.weight) for h in config.pools[0].pool().hosts] == [("a", "h:1", 6), ("b", "h:2", 1)]
