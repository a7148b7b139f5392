"""`homing status`, `drain` and `undrain` against an API of a few lines."""

import json
import re
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from homing.cli.duration import duration, in_words
from homing.cli.main import main
from tests.http_serving import answering

DRAIN = {
    "pool": "p",
    "replica": "a",
    "state": "draining",
    "since_s": 0.0,
    "deadline_s": 0.0,
    "sessions": 12,
    "streams": 3,
    "ended_s": None,
    "why": None,
    "moved": None,
}
LEFT = DRAIN | {"state": "left", "sessions": None, "streams": None, "ended_s": 1.0, "why": "deadline", "moved": 4}


class FakeControl:
    def __init__(self):
        replica = {"weight": 1, "healthy": True, "state": "ready"}
        replicas = [{"id": "a", "address": "10.0.0.1:80"} | replica, {"id": "b", "address": "10.0.0.2:80"} | replica]
        twin = [{"id": "b", "address": "10.0.0.3:80"} | replica]
        self.fleet = {
            "version": "v",
            "told": "v",
            "pools": [
                {"id": "p", "served_name": "m", "replicas": replicas},
                {"id": "q", "served_name": "n", "replicas": twin},
            ],
        }
        self.streams = [{"node": "edge", "envoy_version": "1.40.0", "answer": "acked"}]
        self.control = {
            "name": "",
            "role": "leading",
            "state": "local",
            "trouble": "",
            "same_file": True,
            "members": [],
        }
        self.certificates = [{"use": "api", "trouble": "", "expires_s": None}]
        none = {"version": 0, "at_s": 0.0, "who": "", "bypass": False, "pools": {}}
        self.policies = {"now": none, "differences": [], "earlier": []}
        self.sources = {"sources": [], "differences": []}
        self.drains = []  # the answers of GET /api/drains, one after the other; the last one stays
        self.posted = []
        self.refusal = None

    def answer(self, method, path, query):
        if method == "POST":
            self.posted.append((path, query))
            if self.refusal:
                return 409, {"detail": self.refusal}
            return 200, {"was_draining": True} if path.endswith("undrain") else DRAIN
        if path == "/api/drains":
            drains = self.drains.pop(0) if len(self.drains) > 1 else self.drains[0] if self.drains else []
            return 200, {"drains": drains}
        if path == "/api/policy":
            return 200, self.policies
        if path == "/api/control":
            return 200, self.control
        if path == "/api/sources":
            return 200, self.sources
        if path == "/api/certificates":
            return 200, self.certificates
        return 200, self.fleet if path == "/api/fleet" else {"snapshot": "v", "streams": self.streams}


@pytest.fixture
def control():
    fake = FakeControl()

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            url = urlsplit(self.path)
            query = {name: value for name, (value,) in parse_qs(url.query).items()}
            status, body = fake.answer(self.command, url.path, query)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_):
            pass

    with answering(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        fake.url = f"http://{address}"
        yield fake


@pytest.fixture
def homing(control):
    def run(*arguments):
        return CliRunner().invoke(main, [*arguments, "--api", control.url])

    return run


def test_status_shows_pools_replicas_drains_and_envoys(control, homing):
    control.drains = [[LEFT]]
    assert homing("status").output.splitlines() == [
        "pool p (m): 2 of 2 replicas take new sessions",
        "  a  10.0.0.1:80  ready  healthy",
        "  b  10.0.0.2:80  ready  healthy",
        "pool q (n): 1 of 1 replicas take new sessions",
        "  b  10.0.0.3:80  ready  healthy",
        "p/a has left: its deadline came; 4 sessions move",
        "Envoy edge 1.40.0: acked",
    ]


def test_status_says_that_the_file_was_refused_when_and_why(control, homing):
    control.fleet |= {"file": {"refused": "homing.yaml:3: lissten: found an unknown key", "refused_at_s": 1764450000.0}}
    assert homing("status").output.splitlines()[0] == (
        "THE FILE WAS REFUSED at 2025-11-29 21:00:00Z, what runs is the one before:"
        " homing.yaml:3: lissten: found an unknown key"
    )


def test_status_says_what_an_envoy_refuses_and_why(control, homing):
    control.fleet |= {"pools": []}
    types = {"Cluster": {"error": ""}, "Listener": {"error": "no such filter"}}
    control.streams = [{"node": "edge", "envoy_version": "1.40.0", "answer": "nacked", "types": types}]
    assert homing("status").output.splitlines() == [
        "Envoy edge 1.40.0: nacked",
        "  refuses Listener, the one before stays: no such filter",
    ]


def test_status_says_that_a_change_is_on_its_way_and_that_no_envoy_is_there(control, homing):
    control.fleet |= {"told": "u", "pools": []}
    control.streams = []
    assert homing("status").output.splitlines() == [
        "no Envoy is connected",
        "a change is on its way: the pickers do not have it yet",
    ]


def test_status_says_who_of_several_control_services_leads_and_that_their_files_differ(control, homing):
    control.streams, control.fleet = [], control.fleet | {"pools": []}
    members = [{"name": "one", "role": "leading"}, {"name": "two", "role": "following"}]
    control.control |= {"name": "two", "role": "following", "state": "shared", "members": members}
    assert homing("status").output.splitlines()[1:] == ["control one leads, 2 are there"]
    control.control |= {"same_file": False, "members": members[1:]}
    assert homing("status").output.splitlines()[1:] == [
        "control nobody leads, 1 are there",
        "their files have different replicas: the leader's counts",
    ]
    control.control |= {"role": "alone", "trouble": "refused"}
    assert homing("status").output.splitlines()[1:] == [
        "control two decides alone: the store is away (refused)",
    ]


def test_status_speaks_of_certificates_that_need_somebody(control, homing):
    control.fleet |= {"pools": []}
    now_s = time.time()
    control.certificates = [
        {"use": "api", "trouble": "c.pem: certificate has expired", "expires_s": now_s + 1e9},
        {"use": "xds", "trouble": "", "expires_s": now_s + 25.5 * 3600},
        {"use": "client", "trouble": "", "expires_s": now_s - 1},
        {"use": "fine", "trouble": "", "expires_s": now_s + 20 * 86_400},
    ]
    kept, soon, over = homing("status").output.splitlines()[1:]
    assert kept == "certificate (api): the one before stays: c.pem: certificate has expired"
    assert re.fullmatch(r"certificate \(xds\): runs out in 25h \d+m", soon), soon
    assert over == "certificate (client): has run out"


def test_status_says_what_is_wrong_with_the_sources_of_replicas(control, homing):
    control.fleet |= {"pools": []}
    source = {"pool": "p", "kind": "dns", "replicas": 2, "answered": True, "error": "", "doubted": False}
    control.sources = {
        "sources": [
            source,
            source | {"error": "no route"},
            source | {"kind": "file", "doubted": True},
            source | {"replicas": 0},
        ],
        "differences": [
            {"pool": "p", "replica": "a", "believed": "file", "source": "api", "ours": "weight 1", "theirs": "weight 2"}
        ],
    }
    assert homing("status").output.splitlines()[1:] == [
        "source dns of pool p: its last good answer stays: no route",
        "source file of pool p finds nobody suddenly: not believed yet",
        "source dns of pool p finds nobody",
        "pool p, replica a: file says weight 1, and is believed; api says weight 2",
    ]


def test_status_does_not_count_who_has_no_share_of_the_new_sessions(control, homing):
    control.fleet["pools"][0]["replicas"][0] |= {"takes_new_sessions": False}
    assert homing("status").output.splitlines()[:2] == [
        "pool p (m): 1 of 2 replicas take new sessions",
        "  a  10.0.0.1:80  ready  healthy, no new sessions: its share is 0",
    ]


def test_status_for_machines(control, homing):
    answer = json.loads(homing("status", "--json").output)
    assert [p["id"] for p in answer["fleet"]["pools"]] == ["p", "q"]
    assert answer["envoys"] == [stream | {"types": {}} for stream in control.streams]


def test_drain_says_what_is_left(control, homing):
    result = homing("drain", "a", "--deadline", "1m30s")
    assert result.output == "p/a drains: 12 sessions, 3 streams left; leaves in 0s at the latest\n"
    assert control.posted == [("/api/pools/p/replicas/a/drain", {"deadline_s": "90.0"})]


def test_drain_waits_until_it_has_left(control, homing):
    control.drains = [[], [DRAIN], [LEFT]]
    result = homing("drain", "p/a", "--wait", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.output)
    assert (answer["state"], answer["moved"]) == ("left", 4)


def test_a_drain_that_is_taken_back_ends_the_wait(control, homing):
    control.drains = [[], [DRAIN], []]
    result = homing("drain", "a", "--wait")
    assert (result.exit_code, result.output) == (1, "Error: the drain of p/a was taken back\n")


def test_an_address_drains_with_all_its_ranks(control, homing):
    replica = {"address": "10.0.0.9:80", "weight": 1, "healthy": True, "state": "ready"}
    control.fleet["pools"][0]["replicas"] += [{"id": f"dp-{rank}", "rank": rank} | replica for rank in (0, 1)]
    control.drains = [[LEFT | {"replica": "dp-2", "rank": 2}, LEFT | {"replica": "dp-3"}]]
    result = homing("drain", "dp", "--deadline", "1m")
    assert result.exit_code == 0, result.output
    assert [path for path, _ in control.posted] == [f"/api/pools/p/replicas/dp-{rank}/drain" for rank in (0, 1, 2)]
    assert len(result.output.splitlines()) == 3
    control.posted.clear()
    assert homing("undrain", "p/dp-1").output == "p/dp-1 serves again once its probes succeed\n"
    assert homing("undrain", "p/dp").exit_code == 0
    assert [path for path, _ in control.posted] == [f"/api/pools/p/replicas/dp-{rank}/undrain" for rank in (1, 0, 1, 2)]


def test_undrain(control, homing):
    assert homing("undrain", "a").output == "p/a serves again once its probes succeed\n"
    assert control.posted == [("/api/pools/p/replicas/a/undrain", {})]


def test_a_drained_replica_is_found_though_it_is_not_in_the_fleet(control, homing):
    control.drains = [[LEFT | {"replica": "gone"}]]
    assert homing("undrain", "gone").exit_code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x", "there is no replica x; known: p/a, p/b, q/b"),
        ("b", "several pools have b: say one of p/b, q/b"),
    ],
)
def test_a_name_that_leads_to_no_one_replica(homing, name, said):
    result = homing("drain", name)
    assert (result.exit_code, result.output) == (1, f"Error: {said}\n")


def test_a_refusal_is_one_line(control, homing):
    control.refusal = "too many replicas are drained: take some back"
    result = homing("drain", "a")
    assert (result.exit_code, result.output) == (1, f"Error: {control.refusal}\n")


def test_no_control_service_is_one_line():
    result = CliRunner().invoke(main, ["status", "--api", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: no control service at http://127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h30m", 5400), ("0s", 0), ("1.5", 1.5)]
)
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "1d", "-1", "1m1h"])
def test_no_durations(text):
    result = CliRunner().invoke(main, ["drain", "a", "--deadline", text, "--api", "http://127.0.0.1:1"])
    assert result.exit_code == 2


@pytest.mark.parametrize(("seconds", "words"), [(860, "14m 20s"), (3600, "1h"), (0.4, "0s"), (-5, "0s"), (61, "1m 1s")])
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
