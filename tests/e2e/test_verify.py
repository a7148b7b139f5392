"""`homing verify` against real gateways: the effect, and each classic failure, made for real and recognised."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from e2e.plain_envoy import SOURCE, Listener, PlainEnvoy, header
from e2e.stack import HOMING, Processes, SimulatedPool, StaticStack, answers, free_ports, static_stack, until

from homing.cli.main import main

pytestmark = pytest.mark.e2e

SESSION = "x-session-id"
MODEL = "m"
# hardware so slow that what it computes takes longer than anything else here
SLOW = ("--preset", "h100-llama-8b", "--speed", "0.15")
POOLS = (SimulatedPool("p", MODEL, 3, sim_flags=SLOW),)
SIMS = {
    "uncached": ("--no-enable-prefix-caching",),
    "small": ("--num-gpu-blocks-override", "120", "--max-model-len", "1800"),
}
DATED = "{{ strftime_now('%H:%M:%S.%f') }}{% for m in messages %}{{ m.content }}{% endfor %}"
QUICK = ("--ttft-ms", "1", "--itl-ms", "1")


class Locked(BaseHTTPRequestHandler):
    """An engine that asks for a key, in vLLM's words."""

    protocol_version = "HTTP/1.1"
    status, body = 401, b'{"error":"Unauthorized"}'

    def do_GET(self) -> None:
        answer = json.dumps({"data": [{"id": MODEL}]}).encode()
        self._answer(200, answer)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(self.status, self.body)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class Choiceless(Locked):
    """Whose errors are no errors."""

    status, body = 200, b'{"code":500,"message":"out of order"}'


@dataclass
class Gateways:
    stack: StaticStack
    plain: PlainEnvoy
    engines: dict[str, list[int]]
    """Ports of the engines behind each listener of the plain Envoy."""


@pytest.fixture(scope="module")
def gateways(short_directory: Path) -> Iterator[Gateways]:
    with static_stack(short_directory / "verify", POOLS) as stack, others() as (locked, choiceless):
        processes = Processes(short_directory / "verify")
        try:
            pairs = {name: start_pair(processes, name, flags) for name, flags in SIMS.items()}
            template = processes.directory / "dated.jinja"
            template.write_text(DATED)
            pairs["dated"] = start_pair(processes, "dated", ("--chat-template", str(template)))
            pairs["usual"] = start_pair(processes, "usual", ())
            plain = PlainEnvoy(processes, listeners(stack, pairs, locked, choiceless))
            for port in (port for pair in pairs.values() for port in pair):
                until(lambda port=port: answers(f"http://127.0.0.1:{port}/health"), 60, "a replica")  # type: ignore[misc]
            plain.start()
            yield Gateways(stack, plain, pairs)
        finally:
            processes.stop_all()


def others() -> Served:
    return Served(Locked, Choiceless)


class Served:
    """Servers of these handlers, while it is entered; gives their ports."""

    def __init__(self, *handlers: type[BaseHTTPRequestHandler]) -> None:
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in handlers]
        self._threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in self._servers]

    def __enter__(self) -> list[int]:
        for thread in self._threads:
            thread.start()
        return [server.server_port for server in self._servers]

    def __exit__(self, *_: object) -> None:
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def start_pair(processes: Processes, name: str, flags: tuple[str, ...]) -> list[int]:
    ports = free_ports(2)
    for port in ports:
        argv = ("sim", "--listen", f"127.0.0.1:{port}", "--id", f"{name}-{port}", "--model", MODEL, *QUICK, *flags)
        processes.start(f"{name}-{port}", (*HOMING, *argv))
    return ports


def listeners(stack: StaticStack, pairs: dict[str, list[int]], locked: int, choiceless: int) -> list[Listener]:
    usual = pairs["usual"]
    return [
        Listener("stripping", [stack.data], drops=[SESSION]),
        Listener("good", usual, [header(SESSION)]),
        Listener("dropping", usual, [header(SESSION)], drops=[SESSION]),
        Listener("wrong", usual, [header("x-user-id")]),
        Listener("source", usual, [SOURCE]),
        Listener("uncached", pairs["uncached"], [header(SESSION)]),
        Listener("dated", pairs["dated"], [header(SESSION)]),
        Listener("hiding", [stack.data], hides=[SESSION]),
        Listener("small", pairs["small"], [header(SESSION)]),
        Listener("locked", [locked], [header(SESSION)]),
        Listener("choiceless", [choiceless], [header(SESSION)]),
    ]


class Finding(msgspec.Struct):
    code: str
    weight: str
    seen: str
    change: str


class Verdict(msgspec.Struct):
    effect: str
    headline: str


class Hits(msgspec.Struct):
    queried: float
    found: float


class Comparison(msgspec.Struct):
    hits: dict[str, Hits]
    answered: int


class Report(msgspec.Struct):
    verdict: Verdict
    findings: list[Finding]
    comparison: Comparison
    decisions: dict[str, dict[str, int]]

    def rate(self, run: str) -> float:
        return self.comparison.hits[run].found / self.comparison.hits[run].queried

    def codes(self) -> list[str]:
        return [finding.code for finding in self.findings]


def verify(url: str, *arguments: str, conversations: int = 8) -> tuple[int, Report]:
    size = ("--conversations", str(conversations), "--turns", "4", "--answer-tokens", "2")
    argv = ["verify", "--url", url, "--model", MODEL, *size, "--yes", "--json", *arguments]
    result = CliRunner().invoke(main, argv, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.stderr
    return result.exit_code, msgspec.json.decode(result.stdout, type=Report)


def behind(gateways: Gateways, name: str) -> list[str]:
    return [argument for port in gateways.engines[name] for argument in ("--engine", f"127.0.0.1:{port}")]


def plainly(gateways: Gateways, listener: str, engines: str = "usual", *arguments: str) -> tuple[int, Report]:
    """Where both runs are alike, noise says whether one is called quicker, and so the exit code: the finding counts."""
    return verify(gateways.plain.urls[listener], *behind(gateways, engines), *arguments)


def test_the_effect_is_seen_through_homing(gateways: Gateways) -> None:
    """Scattered turns are scattered, though the picker would know each by its prompt, and by the history in it."""
    _, report = verify(gateways.stack.url, "-c", str(gateways.stack.file))
    assert report.codes() == []
    assert report.comparison.answered == 32
    assert report.rate("affinity") > report.rate("round robin") + 0.05
    assert set(report.decisions["round robin"]) <= {"hash", "left"}  # and never where the prompt is
    assert report.decisions["affinity"] == {"new": 8, "home": 24}


def test_sessions_of_the_scattered_run_are_not_left_behind(gateways: Gateways) -> None:
    verify(gateways.stack.url, "-c", str(gateways.stack.file), conversations=1)
    # probes without an id, and nothing else, have no end of their own
    until(lambda: gateways.stack.metric("homing_sessions") <= 4, what="the sessions' ends")


def test_a_header_that_is_dropped_before_homing_is_said_though_histories_are_recognised(gateways: Gateways) -> None:
    """Both runs come home then, so there is no effect of the id to be seen."""
    _, report = verify(gateways.plain.urls["stripping"], "-c", str(gateways.stack.file))
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("id_lost", "fault")
    assert "by the history that they carry" in finding.seen
    assert report.decisions == {run: {"new": 8, "history": 24} for run in ("round robin", "affinity")}


def test_a_gateway_whose_answers_lose_the_header_is_given_ids(gateways: Gateways) -> None:
    _, report = verify(gateways.plain.urls["hiding"], "-c", str(gateways.stack.file))
    assert report.codes() == []
    assert report.rate("affinity") > report.rate("round robin") + 0.05
    assert report.decisions["affinity"]["home"] == 24


def test_the_effect_is_seen_through_an_envoy_that_hashes_the_session(gateways: Gateways) -> None:
    _, report = plainly(gateways, "good")  # its replicas take the same time for any prompt: no word about times
    assert report.codes() == []
    assert report.rate("affinity") > report.rate("round robin")


def test_a_header_that_is_dropped_before_an_envoy_is_recognised(gateways: Gateways) -> None:
    _, report = plainly(gateways, "dropping")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("wrong_key", "fault")
    assert "or a hop before it drops x-session-id" in finding.change


def test_a_hash_on_another_header_is_recognised_and_named(gateways: Gateways) -> None:
    _, report = plainly(gateways, "wrong")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("wrong_key", "fault")
    assert "The gateway hashes x-user-id" in finding.change


def test_a_hash_on_the_address_is_recognised(gateways: Gateways) -> None:
    _, report = plainly(gateways, "source")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("wrong_key", "fault")
    assert "something that is the same for all sessions" in finding.change


def test_prefix_caching_that_is_off_is_recognised(gateways: Gateways) -> None:
    _, report = plainly(gateways, "uncached", "uncached")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("caching_off", "fault")
    assert "enable_prefix_caching=False" in finding.seen


def test_caches_that_are_too_small_are_recognised(gateways: Gateways) -> None:
    _, report = plainly(gateways, "small", "small", "--concurrency", "8")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("small_caches", "fault")


def test_a_template_that_writes_the_time_is_recognised(gateways: Gateways) -> None:
    _, report = plainly(gateways, "dated", "dated")
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("changed_behind", "fault")


def test_a_changing_text_at_the_front_is_recognised(gateways: Gateways, tmp_path: Path) -> None:
    data = tmp_path / "own.jsonl"
    records = [
        {
            "session_id": f"s{session}",
            "messages": [
                {"role": "system", "content": f"Today is 2026-01-01 10:0{turn}. " + f"Rule {session}. " * 60},
                *({"role": "user", "content": f"{session} {i} " * 60} for i in range(turn)),
            ],
        }
        for session in range(5)
        for turn in range(1, 5)
    ]
    data.write_text("\n".join(map(json.dumps, records)))
    _, report = plainly(gateways, "good", "usual", "--data", str(data))
    (finding,) = report.findings
    assert (finding.code, finding.weight) == ("changing_front", "fault")
    assert "message 1 (system)" in finding.seen
    assert "where a time stands" in finding.seen


def test_one_replica_is_recognised(gateways: Gateways) -> None:
    url = f"http://127.0.0.1:{gateways.engines['usual'][0]}"
    code, report = verify(url, "--engine", url)
    assert (code, report.codes()) == (1, ["one_replica"])


def test_other_load_is_recognised(gateways: Gateways) -> None:
    """Others' requests between the runs' are in the counters."""
    ended = threading.Event()

    def load() -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
        url = gateways.plain.urls["good"] + "/v1/chat/completions"
        with httpx.Client(trust_env=False, timeout=30) as client:
            while not ended.is_set():
                client.post(url, json=body)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        _, report = plainly(gateways, "good")
    finally:
        ended.set()
        thread.join()
    assert "other_load" in report.codes()


def test_engines_that_nobody_named_are_missed(gateways: Gateways) -> None:
    # an engine's port is not where a control service answers
    _, report = verify(gateways.plain.urls["good"], "--engine", f"127.0.0.1:{gateways.stack.admin}")
    assert "no_counters" in report.codes()


@pytest.mark.parametrize(("listener", "code"), [("locked", "unauthorized"), ("choiceless", "no_choices")])
def test_an_engine_that_does_not_answer_is_recognised(gateways: Gateways, listener: str, code: str) -> None:
    ended, report = plainly(gateways, listener)
    assert (ended, report.codes(), report.verdict.effect) == (1, [code], "unknown")


def test_a_gateway_that_is_not_there_is_recognised(gateways: Gateways) -> None:
    (port,) = free_ports(1)
    code, report = verify(f"http://127.0.0.1:{port}")
    assert (code, report.codes()) == (1, ["unreachable"])
    assert "connection refused" in report.findings[0].seen
