"""What a bad file is told: every problem, its line, its key, what was found and what is allowed."""

import pytest

from homing.core.config import ConfigError, Problem, parse
from homing.core.config.kinds import SessionHeader
from homing.core.config.models import PoolSection

REPLICA = "{id: r, address: 'h:1'}"
POOL = f"pools: {{a: {{replicas: [{REPLICA}]}}}}"

FIELD_NAME = (
    "a header's name of up to 64 of a-z 0-9 . _ - that stays the same over a session: not x-homing-*, x-envoy-*, a"
    " hop-by-hop or content header, a credential, nor an id of one request (x-request-id, traceparent)"
)
SESSION_KEYS = (
    "a mapping with keys of headers, body_fields, history, sagemaker, cookie, signed, ttl_s, max, pins, secret"
)
LOOPBACK = "a loopback address and a port from 1 to 65535, such as 127.0.0.1:9901 (it asks nobody who they are)"
GUARDED_XDS = "a loopback address, or any with tls.xds.client_ca, tokens.fleet or tls.trusted_network"
UNASKED = "and nobody who connects is asked who they are"
IN_FILE = "file:PATH (a file in PEM)"
PAIR = "a certificate with its key"
SECRET = "env:NAME or file:PATH (the place of the secret, not the secret)"
GUARDED_API = "a loopback address, or any with tokens.admin"
ENDPOINT = "host:port or https://host:port: an IP address ([...] around IPv6) or a DNS name, and a port from 1 to 65535"
LISTENER = "an IP address of this machine and a port from 1 to 65535, such as 127.0.0.1:8080"
POOL_ID = "a lower-case letter or digit, then up to 62 of a-z 0-9 . _ -; not beginning with homing- or homing_"
REPLICA_ID = "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ : -"
MODEL_NAME = "1 to 256 printable ASCII characters, without blanks, double quotes or backslashes"
PATH = 'a path that begins with /, up to 256 printable ASCII characters, no " # or blank'
POOL_KEYS = ", ".join(PoolSection.model_fields)
TOP_KEYS = "listen, admin, xds, api, tls, tokens, expose_decisions, sessions, tenants, auto, health, control, pools"


def problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return caught.value.problems


def told(text: str | bytes) -> list[str]:
    return [str(p) for p in problems(text)]


def test_all_problems_of_a_file_are_told_at_once_in_its_order():
    text = """\
listen: 127.0.0.1:0
admin: 0.0.0.0:9901
pools:
  qwen-72b:
    alias: [chat]
    replicas:
    - {id: gpu-a, address: 10.0.1.11:8000}
    - id: gpu-b
      address: http://10.0.1.12:8000
      weight: 0
    - {id: gpu-a, address: 10.0.1.13:8000}
sessions:
  headers: [x-request-id]
  ttl_s: .nan
"""
    assert problems(text) == (
        Problem("f", 1, "listen", '"127.0.0.1:0"', LISTENER),
        Problem("f", 2, "admin", '"0.0.0.0:9901"', LOOPBACK),
        Problem(
            "f",
            5,
            "pools.qwen-72b.alias",
            "an unknown key (did you mean aliases?)",
            POOL_KEYS,
        ),
        Problem("f", 9, "pools.qwen-72b.replicas[1].address", '"http://10.0.1.12:8000"', ENDPOINT),
        Problem("f", 10, "pools.qwen-72b.replicas[1].weight", "0", "an integer from 1 to 128"),
        Problem(
            "f",
            11,
            "pools.qwen-72b.replicas[2].id",
            '"gpu-a" again (pools.qwen-72b.replicas[0].id, line 7)',
            "an id that no other replica of the pool has",
        ),
        Problem("f", 13, "sessions.headers[0]", '"x-request-id"', SessionHeader().allowed),
        Problem("f", 14, "sessions.ttl_s", ".nan", "a number from 0.001 to 31536000"),
    )


def test_the_error_says_one_line_a_problem():
    with pytest.raises(ConfigError) as caught:
        parse("expose_decisions: 1\nhash: ring\n" + POOL, "homing.yaml")
    assert str(caught.value) == (
        "homing.yaml:1: expose_decisions: found 1, allowed: true or false\n"
        f"homing.yaml:2: hash: found an unknown key, allowed: {TOP_KEYS}"
    )


@pytest.mark.parametrize(
    ("key", "value", "found", "allowed"),
    [
        ("weight", "0", "0", "an integer from 1 to 128"),
        ("weight", "129", "129", "an integer from 1 to 128"),
        ("weight", "true", "true", "an integer from 1 to 128"),
        ("weight", "1.0", "1.0", "an integer from 1 to 128"),
        ("weight", "'1'", '"1"', "an integer from 1 to 128"),
        ("weight", ".inf", ".inf", "an integer from 1 to 128"),
        ("weight", "", "nothing", "an integer from 1 to 128"),
        ("weight", "[1]", "a list of 1", "an integer from 1 to 128"),
        ("weight", "9" * 18, "9" * 18, "an integer from 1 to 128"),
        ("weight", "9" * 5000, f'"{"9" * 60}"...', "an integer from 1 to 128"),
        ("note", "sk-secret", "an unknown key", "id, address, weight, dp_size, adapters"),
    ],
)
def test_a_replica_key_is_refused(key, value, found, allowed):
    text = f"pools: {{a: {{replicas: [{{id: r, address: 'h:1', {key}: {value}}}]}}}}"
    assert problems(text) == (Problem("f", 1, f"pools.a.replicas[0].{key}", found, allowed),)


@pytest.mark.parametrize(
    ("section", "key", "found", "allowed"),
    [
        ("health: {interval_s: true}", "health.interval_s", "true", "a number from 0.1 to 3600"),
        ("health: {interval_s: .inf}", "health.interval_s", ".inf", "a number from 0.1 to 3600"),
        ("health: {interval_s: -.INF}", "health.interval_s", "-.INF", "a number from 0.1 to 3600"),
        ("health: {interval_s: 1e400}", "health.interval_s", "1e400", "a number from 0.1 to 3600"),
        ("health: {interval_s: 0}", "health.interval_s", "0", "a number from 0.1 to 3600"),
        ("health: {timeout_s: NaN}", "health.timeout_s", '"NaN"', "a number from 0.01 to 300"),
        ("health: {timeout_s: 301}", "health.timeout_s", "301", "a number from 0.01 to 300"),
        ("health: {unhealthy_threshold: 0}", "health.unhealthy_threshold", "0", "an integer from 1 to 100"),
        ("health: {healthy_threshold: 101}", "health.healthy_threshold", "101", "an integer from 1 to 100"),
        ("health: {path: health}", "health.path", '"health"', PATH),
        ("health: {path: '/a b'}", "health.path", '"/a b"', PATH),
        ("health: {path: '/a#b'}", "health.path", '"/a#b"', PATH),
        ('health: {path: "/a\\r\\nb: c"}', "health.path", '"/a\\r\\nb: c"', PATH),
        ("sessions: {ttl_s: 0}", "sessions.ttl_s", "0", "a number from 0.001 to 31536000"),
        ("sessions: {ttl_s: -1}", "sessions.ttl_s", "-1", "a number from 0.001 to 31536000"),
        ("sessions: {max: 0}", "sessions.max", "0", "an integer from 1 to 10000000"),
        ("sessions: {max: 10000001}", "sessions.max", "10000001", "an integer from 1 to 10000000"),
        ("sessions: {headers: []}", "sessions.headers", "an empty list", "a list of 1 to 16 header names"),
        ("sessions: {headers: x-a}", "sessions.headers", '"x-a"', "a list of 1 to 16 header names"),
        (
            f"sessions: {{headers: [{', '.join(f'x-{i}' for i in range(17))}]}}",
            "sessions.headers",
            "a list of 17",
            "a list of 1 to 16 header names",
        ),
        ("sessions: 3", "sessions", "3", SESSION_KEYS),
        (
            "sessions:",
            "sessions",
            "nothing",
            SESSION_KEYS,
        ),
        ("tenants: {}", "tenants.header", "nothing", FIELD_NAME),
        ("tenants: {header: x-t, trusted: yes}", "tenants.trusted", '"yes"', "true or false"),
        ("expose_decisions: 'true'", "expose_decisions", '"true"', "true or false"),
        ("listen: localhost:8080", "listen", '"localhost:8080"', LISTENER),
        ("listen: 8080", "listen", "8080", LISTENER),
        ("admin: localhost:9901", "admin", '"localhost:9901"', LOOPBACK),
        ("xds: 10.0.0.1:18000", "xds", f"10.0.0.1:18000, {UNASKED}", GUARDED_XDS),
        ("api: '[::]:8600'", "api", "[::]:8600, and no tokens.admin", GUARDED_API),
        ("api: 127.0.0.1:65536", "api", '"127.0.0.1:65536"', LISTENER),
        ("tokens: {admin: abc}", "tokens.admin", "something else", SECRET),
        ("tls: {api: {cert: env:C, key: file:k}}", "tls.api.cert", '"env:C"', IN_FILE),
        ("tls: {api: {cert: -----BEGIN, key: file:k}}", "tls.api.cert", "something else", IN_FILE),
        ("tls: {api: {cert: file:c}}", "tls.api.key", "nothing", IN_FILE),
        ("tls: {client: {cert: file:c}}", "tls.client.key", "nothing, though there is a cert", PAIR),
        ("tls: {client: {key: file:c}}", "tls.client.cert", "nothing, though there is a key", PAIR),
    ],
)
def test_a_key_outside_the_pools_is_refused(section, key, found, allowed):
    assert problems(f"{POOL}\n{section}") == (Problem("f", 2, key, found, allowed),)


@pytest.mark.parametrize(
    ("pools", "key", "found", "allowed"),
    [
        ("{}", "pools", "an empty mapping", "a mapping of 1 to 200 pools"),
        ("[]", "pools", "an empty list", "a mapping of 1 to 200 pools"),
        ("", "pools", "nothing", "a mapping of 1 to 200 pools"),
        ("{a: }", "pools.a", "nothing", f"a mapping with keys of {POOL_KEYS}"),
        ("{a: {}}", "pools.a.replicas", "nothing", "1 to 1000 replicas, or discovery"),
        ("{a: {replicas: []}}", "pools.a.replicas", "an empty list", "1 to 1000 replicas, or discovery"),
        ("{a: {replicas: {id: r}}}", "pools.a.replicas", "a mapping", "a list of 0 to 1000 replicas"),
        (
            "{a: {replicas: [r]}}",
            "pools.a.replicas[0]",
            '"r"',
            "a mapping with keys of id, address, weight, dp_size, adapters",
        ),
        (
            "{a: {replicas: [" + ", ".join(f"{{id: r{i}, address: 'h{i}:1'}}" for i in range(1001)) + "]}}",
            "pools.a.replicas",
            "a list of 1001",
            "a list of 0 to 1000 replicas",
        ),
        ("{a: {replicas: [{id: r}]}}", "pools.a.replicas[0].address", "nothing", ENDPOINT),
        ("{a: {replicas: [{address: 'h:1'}]}}", "pools.a.replicas[0].id", "nothing", REPLICA_ID),
        (
            "{a: {replicas: [{id: 7, address: 'h:1'}]}}",
            "pools.a.replicas[0].id",
            "7",
            f'{REPLICA_ID} (as text: "7", in quotes)',
        ),
        ("{a: {replicas: [{id: 'a b', address: 'h:1'}]}}", "pools.a.replicas[0].id", '"a b"', REPLICA_ID),
        ("{a: {replicas: [{id: \"a\\n\", address: 'h:1'}]}}", "pools.a.replicas[0].id", '"a\\n"', REPLICA_ID),
        (f"{{a: {{hash: random, replicas: [{REPLICA}]}}}}", "pools.a.hash", '"random"', "ring or maglev or ketama"),
        (f"{{a: {{served_name: , replicas: [{REPLICA}]}}}}", "pools.a.served_name", "nothing", MODEL_NAME),
        (f"{{a: {{served_name: '', replicas: [{REPLICA}]}}}}", "pools.a.served_name", '""', MODEL_NAME),
        (f"{{a: {{aliases: [é], replicas: [{REPLICA}]}}}}", "pools.a.aliases[0]", '"\\u00e9"', MODEL_NAME),
        (
            f"{{a: {{aliases: [{', '.join(f'n{i}' for i in range(65))}], replicas: [{REPLICA}]}}}}",
            "pools.a.aliases",
            "a list of 65",
            "a list of 0 to 64 model names",
        ),
        (f"{{A: {{replicas: [{REPLICA}]}}}}", "pools.A", "the pool id A", POOL_ID),
        (f"{{homing-xds: {{replicas: [{REPLICA}]}}}}", "pools.homing-xds", "the pool id homing-xds", POOL_ID),
        (f"{{'a b': {{replicas: [{REPLICA}]}}}}", 'pools."a b"', 'the pool id "a b"', POOL_ID),
        (f"{{'[key]': {{replicas: [{REPLICA}]}}}}", 'pools."[key]"', 'the pool id "[key]"', POOL_ID),
        (
            f"{{a: {{'[key]': 1, replicas: [{REPLICA}]}}}}",
            'pools.a."[key]"',
            "an unknown key",
            POOL_KEYS,
        ),
        (
            f"{{replicas: {{replica: 1, replicas: [{REPLICA}]}}}}",
            "pools.replicas.replica",
            "an unknown key (did you mean replicas?)",
            POOL_KEYS,
        ),
    ],
)
def test_a_pool_is_refused(pools, key, found, allowed):
    assert problems(f"pools: {pools}") == (Problem("f", 1, key, found, allowed),)


@pytest.mark.parametrize(
    "name",
    [
        "x-request-id", "X-Request-Id", "traceparent", "x-homing-key", "X-Homing-Given",
        "x-gateway-destination-endpoint",
        "connection", "keep-alive", "te", "transfer-encoding", "upgrade", "host", "content-length", "authorization",
        "cookie", "x-session-close", "x-envoy-original-path", ":path", "x session", "x-session:", "x-sessión", "",
        "x%y", "x" * 65,
        "x_\u212a",  # the Kelvin sign, whose lower case is an ASCII k
    ],
)  # fmt: skip
def test_a_header_that_cannot_name_a_session_is_refused(name):
    assert [p.key for p in problems(f"{POOL}\nsessions: {{headers: ['{name}']}}")] == ["sessions.headers[0]"]
    assert [p.key for p in problems(f"{POOL}\ntenants: {{header: '{name}'}}")] == ["tenants.header"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "replicas: [{id: r, address: h:1}, {id: r, address: h:2}]",
            'f:2: pools.a.replicas[1].id: found "r" again (pools.a.replicas[0].id, line 2), allowed: an id that no'
            " other replica of the pool has",
        ),
        (
            "replicas: [{id: r, address: h:1, dp_size: 2}, {id: r-1, address: h:2}]",
            'f:2: pools.a.replicas[1].id: found "r-1" again (pools.a.replicas[0].id, line 2), allowed: an id that no'
            " other replica of the pool has",
        ),
        (
            "replicas: [{id: r, address: H.x:1}, {id: s, address: h.x.:1}]",
            'f:2: pools.a.replicas[1].address: found "h.x:1" again (pools.a.replicas[0].address, line 2), allowed: an'
            " address that no other replica of the pool has",
        ),
        (
            'replicas: [{id: r, address: "[0::1]:1"}, {id: s, address: "[::1]:01"}]',
            'f:2: pools.a.replicas[1].address: found "[::1]:1" again (pools.a.replicas[0].address, line 2), allowed: an'
            " address that no other replica of the pool has",
        ),
        (
            "aliases: [x, x]\n    replicas: [{id: r, address: h:1}]",
            'f:2: pools.a.aliases[1]: found "x" again (pools.a.aliases[0], line 2), allowed: a model name that leads to'
            " one pool, and once",
        ),
        (
            "aliases: [a]\n    replicas: [{id: r, address: h:1}]",
            'f:2: pools.a.aliases[0]: found "a" again (pools.a, line 1), allowed: a model name that leads to one pool,'
            " and once",
        ),
    ],
)
def test_a_pool_that_repeats_itself_is_refused(text, expected):
    assert told(f"pools: {{a: {{\n    {text.replace(chr(10), ',')}}}}}") == [expected]


def test_a_model_name_leads_to_one_pool():
    text = f"""\
pools:
  a: {{served_name: m, aliases: [b], replicas: [{REPLICA}]}}
  b: {{replicas: [{REPLICA}]}}
  c: {{served_name: m, replicas: [{REPLICA}]}}
"""
    allowed = "allowed: a model name that leads to one pool, and once"
    assert told(text) == [
        f'f:3: pools.b: found "b" again (pools.a.aliases[0], line 2), {allowed}',
        f'f:4: pools.c.served_name: found "m" again (pools.a.served_name, line 2), {allowed}',
    ]


def test_two_pools_may_share_replica_ids_and_addresses():
    text = f"pools: {{a: {{replicas: [{REPLICA}]}}, b: {{replicas: [{REPLICA}]}}}}"
    assert len(parse(text, "f").pools) == 2


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        (
            "api: 127.0.0.1:7000\nxds: 127.0.0.1:7000",
            "f:3: xds: found 127.0.0.1:7000, where api listens (127.0.0.1:7000)",
        ),
        ("api: 127.0.0.1:8080", "f:2: api: found 127.0.0.1:8080, where listen listens by default (127.0.0.1:8080)"),
        ("listen: 0.0.0.0:9901", "f:2: listen: found 0.0.0.0:9901, where admin listens by default (127.0.0.1:9901)"),
        ("listen: '[::]:9901'", "f:2: listen: found [::]:9901, where admin listens by default (127.0.0.1:9901)"),
    ],
)
def test_two_listeners_at_one_place_are_refused(listeners, expected):
    assert told(f"{POOL}\n{listeners}") == [
        f"{expected}, allowed: an address of its own for each of listen, admin, xds, api"
    ]


def test_one_port_may_serve_two_hosts():
    assert parse(f"{POOL}\nlisten: 10.0.0.1:9901", "f").listen.port == 9901


def test_a_session_header_stands_once_in_any_case():
    assert told(f"{POOL}\nsessions: {{headers: [x-a, X-A]}}") == [
        'f:2: sessions.headers[1]: found "x-a" again (sessions.headers[0], line 2), allowed: each header once'
    ]


@pytest.mark.parametrize("sessions", ["", "sessions: {headers: [x-a, x-session-id]}"])
def test_one_header_cannot_name_both_tenant_and_session(sessions):
    assert told(f"{POOL}\n{sessions}\ntenants: {{header: X-Session-Id}}") == [
        'f:3: tenants.header: found "x-session-id", which names the session too, allowed: a header that is not in'
        " sessions.headers"
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("Listen", "listen"), ("listner", "listen"), ("pool", "pools"), ("session", "sessions"), ("tenent", "tenants"),
        ("expose-decisions", "expose_decisions"), ("expose", "expose_decisions"),
    ],
)  # fmt: skip
def test_a_near_key_is_suggested(key, meant):
    assert told(f"{POOL}\n{key}: 1") == [
        f"f:2: {key}: found an unknown key (did you mean {meant}?), allowed: {TOP_KEYS}"
    ]


@pytest.mark.parametrize("key", ["x", "ap", "engine", "k" * 900, "исключ"])
def test_no_key_is_suggested_where_none_is_near(key):
    assert [p.found for p in problems(f"{POOL}\n{key}: 1")] == ["an unknown key"]


def test_the_value_of_an_unknown_key_is_not_told():
    assert "sk-12345" not in "\n".join(told(f"{POOL}\napi_key: sk-12345"))


def test_more_problems_than_anyone_reads_are_counted():
    found = problems("\n".join(f"k{i}: 1" for i in range(300)))  # and pools is missing
    assert len(found) == 201
    assert found[-1] == Problem("f", 199, "", "101 more problems", "none")


def test_a_problem_without_a_line_names_the_file_alone():
    assert str(Problem("f", None, "", "no such file", "a file")) == "f: found no such file, allowed: a file"


@pytest.mark.parametrize("name", ["x-a+x-b", "X-A+X-B", "session_id"])
def test_a_session_may_be_named_by_two_headers(name: str):
    config = parse(f"{POOL}\nsessions: {{headers: ['{name}']}}", "f")
    assert config.sessions.headers == (name.lower(),)


@pytest.mark.parametrize("name", ["x-a+", "+x-a", "x-a+x-b+x-c", "x-a+x-request-id", "x-a + x-b", "+"])
def test_other_combinations_of_headers_are_refused(name: str):
    assert [p.key for p in problems(f"{POOL}\nsessions: {{headers: ['{name}']}}")] == ["sessions.headers[0]"]


def test_a_header_that_names_a_part_of_a_session_counts_as_named():
    found = problems(f"{POOL}\nsessions: {{headers: ['x-a+x-b', 'x-b']}}")
    assert [p.key for p in found] == ["sessions.headers[1]"]


def test_a_secret_that_stands_in_the_file_is_not_repeated():
    place = "env:NAME or file:PATH (the place of the secret, not the secret)"
    assert told(
        f"{POOL}\nsessions: {{cookie: {{secret: hunter2-hunter2}}, signed: {{keys: ['s3cret', 'env:A']}}}}\n"
    ) == [
        f"f:2: sessions.cookie.secret: found something else, allowed: {place}",
        f"f:2: sessions.signed.keys[0]: found something else, allowed: {place}",
    ]


def test_an_adapter_is_a_name_of_one_pool_though_several_replicas_may_have_it():
    replicas = "[{id: r, address: 'h:1', adapters: [x, y]}, {id: s, address: 'h:2', adapters: [x]}]"
    fleet = parse(f"pools: {{a: {{replicas: {replicas}}}}}", "f").fleet()
    assert fleet.pools[0].names == ("a", "x", "y")
    with pytest.raises(ConfigError) as caught:
        parse(f"pools: {{a: {{replicas: {replicas}}}, x: {{replicas: [{{id: r, address: 'h:3'}}]}}}}", "f")
    assert [p.found.split()[0] for p in caught.value.problems] == ['"x"']


@pytest.mark.parametrize(
    "section",
    [
        "api: 0.0.0.0:8600\ntokens: {admin: env:A}",
        "xds: 0.0.0.0:18000\ntokens: {fleet: env:A}",
        "xds: 0.0.0.0:18000\ntls: {trusted_network: true}",
        "xds: 0.0.0.0:18000\ntls: {xds: {cert: file:c, key: file:k, client_ca: file:ca}}",
    ],
)
def test_a_listener_that_asks_who_comes_may_be_wider_than_loopback(section):
    assert parse(f"{POOL}\n{section}", "f").pools


def test_a_certificate_without_client_ca_asks_nobody():
    text = f"{POOL}\nxds: 0.0.0.0:18000\ntls: {{xds: {{cert: file:c, key: file:k}}}}"
    assert problems(text) == (Problem("f", 2, "xds", f"0.0.0.0:18000, {UNASKED}", GUARDED_XDS),)
