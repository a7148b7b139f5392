"""`homing verify` against a gateway of a few lines, which fails as it is told to."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from authority import Authority
from click.testing import CliRunner, Result

from homing.cli.main import main
from homing.cli.ready_block import ready_block
from homing.cli.verify import command, engines
from homing.core.config import parse
from homing.core.placement.minting import looks_minted
from tests.http_serving import answering

SSE = {"content-type": "text/event-stream"}
SMALL = ("--conversations", "5", "--turns", "4", "--answer-tokens", "3", "--concurrency", "2")


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def streamed(words: int = 3, prompt_tokens: int = 100, cached_tokens: int = 60) -> bytes:
    chunks = [event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})]
    chunks += [event({"choices": [{"delta": {"content": "word "}}]}) for _ in range(words)]
    details = {"cached_tokens": cached_tokens}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": words, "prompt_tokens_details": details}
    return b"".join([*chunks, event({"choices": [], "usage": usage}), event(b"[DONE]")])


class FakeGateway(ThreadingHTTPServer):
    """Answers every POST with `answer`; keeps the bodies and headers of each."""

    daemon_threads = True

    def __init__(self) -> None:
        self.models = ["m"]
        self.status, self.headers, self.body = 200, dict(SSE), streamed()
        self.issues = True
        self.signs = False
        self.asked: list[tuple[dict[str, str], dict[str, object]]] = []
        self.metrics = b""
        self.stop_at = 0
        """The request upon which the user presses Ctrl-C."""
        self.replicas: tuple[str, ...] = ()
        """Who answers, in turn."""
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeGateway

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, {"content-type": "text/plain"}, self.server.metrics)
        else:
            models = {"data": [{"id": name} for name in self.server.models]}
            self._answer(200, {"x-session-id": "signed-by-us"}, json.dumps(models).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(({k.lower(): v for k, v in self.headers.items()}, body))
        if len(self.server.asked) == self.server.stop_at:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # it waits for this answer
            return
        session = self.headers.get("x-session-id")
        if self.server.signs and session not in (None, "signed-by-us"):
            self._answer(401, {}, b'{"error": {"message": "The session id was not issued here."}}')
            return
        named = {"x-session-id": session or "signed-by-us"} if self.server.issues else {}
        replicas = self.server.replicas
        served = {"x-homing-replica": replicas[len(self.server.asked) % len(replicas)]} if replicas else {}
        self._answer(self.server.status, self.server.headers | named | served, self.server.body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    server = FakeGateway()
    with answering(server):
        yield server


def verify(gateway: FakeGateway, *arguments: str, yes: bool = True) -> Result:
    # --api at the gateway itself would be asked for a fleet: a named engine keeps this machine's out of the test
    engine = () if "--engine" in arguments else ("--engine", gateway.url)
    said = ("--yes",) if yes else ()
    return CliRunner().invoke(main, ["verify", "--url", gateway.url, *SMALL, *engine, *said, *arguments])


def found(result: Result) -> dict[str, object]:
    report: dict[str, object] = json.loads(result.stdout)
    return report


def codes(result: Result) -> list[str]:
    return [finding["code"] for finding in found(result)["findings"]]  # type: ignore[attr-defined]


def test_each_run_sends_the_same_conversations_under_a_salt_of_its_own(gateway: FakeGateway) -> None:
    verify(gateway)
    turns = [(headers, body) for headers, body in gateway.asked if len(body["messages"]) > 1]
    assert len(turns) == 2 * 5 * 4
    texts = [json.dumps(body["messages"]) for _, body in turns]
    salts = {body["messages"][0]["content"].split("\n")[0] for _, body in turns}
    assert len(salts) == 2
    assert len(set(texts)) == len(texts)
    for salt in salts:
        texts = [text.replace(salt, "SALT") for text in texts]
    assert sorted(texts[:20]) == sorted(texts[20:])
    assert all(body["stream"] and body["max_tokens"] == 3 and body["model"] == "m" for _, body in turns)


def test_scattered_turns_have_an_id_each_and_the_others_the_one_that_was_issued(gateway: FakeGateway) -> None:
    verify(gateway)
    turns = [(headers, body) for headers, body in gateway.asked if len(body["messages"]) > 1]
    scattered, affinity = turns[:20], turns[20:]
    assert len({headers["x-session-id"] for headers, _ in scattered}) == 20
    # or a homing would look at their prompts, and bring them home
    assert all(looks_minted(headers["x-session-id"].encode()) for headers, _ in scattered)
    assert all(headers["x-session-close"] == "true" for headers, _ in scattered)
    first = [headers for headers, body in affinity if len(body["messages"]) == 2]
    later = [headers for headers, body in affinity if len(body["messages"]) > 2]
    assert {headers.get("x-session-id") for headers in first} == {None}
    assert {headers["x-session-id"] for headers in later} == {"signed-by-us"}
    assert sum("x-session-close" in headers for headers, _ in affinity) == 5


def test_a_gateway_that_issues_no_ids_gets_one_for_each_conversation(gateway: FakeGateway) -> None:
    gateway.issues = False
    verify(gateway)
    affinity = [headers for headers, body in gateway.asked if len(body["messages"]) > 1][20:]
    assert len({headers["x-session-id"] for headers in affinity}) == 5


def test_a_gateway_that_signs_its_ids_is_scattered_by_its_own(gateway: FakeGateway) -> None:
    gateway.signs = True
    result = verify(gateway, "--json")
    assert "unauthorized" not in codes(result)
    scattered = [headers for headers, body in gateway.asked if len(body["messages"]) > 1][:20]
    assert {headers["x-session-id"] for headers in scattered} == {"signed-by-us"}
    began = [body for headers, body in gateway.asked if len(body["messages"]) == 1 and "x-session-id" not in headers]
    assert len(began) == 1 + 20  # a session for each of these turns, and the first probe


def test_completions_get_a_prompt(gateway: FakeGateway) -> None:
    gateway.body = b"".join([event({"choices": [{"text": "word"}]}), event(b"[DONE]")])
    result = verify(gateway, "--endpoint", "completions", "--json")
    assert found(result)["comparison"]["answered"] == 20  # type: ignore[index]
    _, body = gateway.asked[-1]
    assert body["prompt"].endswith("\n\nassistant:")
    assert "messages" not in body


def test_the_key_is_taken_from_the_environment_and_never_shown(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "sk-secret")
    result = verify(gateway, "--api-key", "env:KEY_OF_THE_TEST", "--header", "X-Tenant: t", "--json")
    assert {headers["authorization"] for headers, _ in gateway.asked} == {"Bearer sk-secret"}
    assert {headers["x-tenant"] for headers, _ in gateway.asked} == {"t"}
    assert "sk-secret" not in result.output


def test_no_session_id_prompt_or_answer_is_in_the_report(gateway: FakeGateway, tmp_path: Path) -> None:
    result = verify(gateway, "--json", "--out", str(tmp_path / "out"))
    written = (tmp_path / "out" / "verify.html").read_text() + (tmp_path / "out" / "verify.json").read_text()
    sent = {headers["x-session-id"] for headers, _ in gateway.asked if "x-session-id" in headers}
    salt = gateway.asked[-1][1]["messages"][0]["content"].split("\n")[0]
    for text in (*sent, salt, "word word"):
        assert text not in result.stdout + written


@pytest.mark.parametrize(
    ("status", "headers", "body", "code"),
    [
        (401, {}, b'{"error": "Unauthorized"}', "unauthorized"),
        (404, {}, b'{"error": {"message": "The model m does not exist."}}', "failing"),
        (200, {"content-type": "text/html"}, b"<html>hello</html>", "no_choices"),
        (200, {"content-type": "application/json"}, b'{"detail": "not found"}', "no_choices"),
        (200, SSE, event({"error": {"message": "broken"}}), "no_choices"),
        (200, SSE, b"", "no_choices"),
        (200, SSE, streamed() + event({"error": {"message": "broken"}}), "unreachable"),
    ],
)
def test_a_gateway_that_does_not_answer_gets_one_request_and_a_finding(
    gateway: FakeGateway, status: int, headers: dict[str, str], body: bytes, code: str
) -> None:
    gateway.status, gateway.headers, gateway.body = status, headers, body
    result = verify(gateway, "--json")
    assert (result.exit_code, codes(result)) == (1, [code])
    assert len(gateway.asked) == 1
    assert found(result)["verdict"]["effect"] == "unknown"  # type: ignore[index]


def test_a_connection_that_is_refused_is_a_finding(gateway: FakeGateway) -> None:
    arguments = ["verify", "--url", "http://127.0.0.1:1", "--engine", gateway.url, "--yes", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, codes(result)) == (1, ["unreachable"])
    assert "connection refused" in result.stdout


def test_answers_that_come_whole_are_noticed(gateway: FakeGateway) -> None:
    answer = {"choices": [{"message": {"content": "word"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    gateway.headers, gateway.body = {"content-type": "application/json"}, json.dumps(answer).encode()
    assert "unstreamed" in codes(verify(gateway, "--json"))


def test_caps_hold_and_both_runs_send_as_much(gateway: FakeGateway) -> None:
    gateway.body = streamed(prompt_tokens=100_000)  # far more than was estimated
    result = verify(gateway, "--json", "--max-tokens", "4000000")
    report = found(result)
    turns = [body for _, body in gateway.asked if len(body["messages"]) > 1]
    assert report["capped"] is True
    assert len(turns) < 2 * 5 * 4
    assert report["tokens"] <= 4_000_000 + 3 * 100_000  # type: ignore[operator]
    assert report["comparison"]["answered"] > 0  # type: ignore[index]


def test_requests_are_capped_before_anything_is_sent(gateway: FakeGateway) -> None:
    result = verify(gateway, "--max-requests", str(17 + 2 * 4 * 2))
    assert len(gateway.asked) <= 17 + 2 * 4 * 2
    assert "2 conversations of 8 turns together" in result.stderr
    refused = verify(gateway, "--max-requests", "20")
    assert (refused.exit_code, refused.stdout) == (2, "")


@pytest.mark.parametrize("cap", [25, 35])
def test_the_search_for_another_key_stays_within_the_cap(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    """Ids do not decide here: every other answer is another replica's."""
    monkeypatch.setattr(engines, "DEFAULT_API", "http://127.0.0.1:1")
    gateway.issues, gateway.replicas = False, ("a", "b")
    arguments = ["verify", "--url", gateway.url, *SMALL, "--yes", "--json", "--max-requests", str(cap)]
    result = CliRunner().invoke(main, arguments)
    assert "wrong_key" in codes(result)
    assert len(gateway.asked) <= cap
    assert found(result)["requests"] == len(gateway.asked)


def test_nothing_is_sent_unasked(gateway: FakeGateway) -> None:
    result = verify(gateway, yes=False)
    assert result.exit_code == 2
    assert "57 requests, about" in result.stderr
    assert "say --yes" in result.stderr
    assert gateway.asked == []


def test_of_several_models_one_has_to_be_named(gateway: FakeGateway) -> None:
    gateway.models = ["m", "n"]
    assert "--model with one of m, n" in verify(gateway).stderr
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--api-key", "sk-secret"), "say env:NAME or file:PATH"),
        (("--api-key", "env:NO_SUCH_NAME_HERE"), "the variable is not set"),
        (("--header", "nonsense"), "give 'NAME: VALUE'"),
        (("--turns", "3"), "3 is not in the range x>=4"),
        (("--engine", "http://a:1", "--engine", "a:1"), "named twice"),
        (("--engine", ""), "names no host"),
        (("--engine", "http://[bad"), "names no host"),
        (("--url", "http://127.0.0.1:99999"), "a port is a number from 1 to 65535"),
        (("--url", "http://me:sk-secret@127.0.0.1:1"), "no user and no password"),
        (("--url", "127.0.0.1:1"), "begins with http:// or https://"),
        (("--header", "x y: sk-secret"), "a header's name"),
        (("--header", "x: sk-secret\u00e9"), "a header's value"),
        (("--session-header", ""), "a header's name"),
        (("--out", "/dev/null/here"), "--out /dev/null/here: "),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    gateway: FakeGateway, arguments: tuple[str, ...], words: str
) -> None:
    result = verify(gateway, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "sk-secret" not in result.output
    assert gateway.asked == []


def test_a_key_that_is_none_is_not_shown(gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret\nsk-more")
    result = verify(gateway, "--api-key", f"file:{tmp_path / 'key'}")
    assert result.exit_code == 2
    assert "--api-key: a header's value is printable ASCII, of one line" in result.stderr
    assert "sk-" not in result.output


def test_the_path_that_clients_post_to_is_no_part_of_the_address(gateway: FakeGateway) -> None:
    result = verify(gateway, "--url", f"{gateway.url}/v1/chat/completions", "--json")
    assert found(result)["setup"]["url"] == gateway.url  # type: ignore[index]


def test_a_redirect_is_told_as_one(gateway: FakeGateway) -> None:
    gateway.status, gateway.headers = 308, {"location": "https://elsewhere"}
    result = verify(gateway, "--json")
    assert codes(result) == ["failing"]
    assert "leads elsewhere" in result.stdout


def test_why_tls_did_not_come_about_is_said(gateway: FakeGateway, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")
    gateway.socket = context.wrap_socket(gateway.socket, server_side=True)
    https = gateway.url.replace("http:", "https:")
    unknown = verify(gateway, "--url", https, "--json")
    assert codes(unknown) == ["unreachable"]
    assert "TLS: unable to get local issuer certificate" in unknown.stdout
    assert "--ca FILE" in unknown.stdout
    assert "unreachable" not in codes(verify(gateway, "--url", https, "--ca", str(tmp_path / "ca.pem"), "--json"))


def test_https_where_no_tls_is_spoken_is_said(gateway: FakeGateway) -> None:
    result = verify(gateway, "--url", gateway.url.replace("http:", "https:"), "--json")
    assert "TLS: " in result.stdout
    assert "the URL begins with http:" in result.stdout


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C, and so do its children: a suite may be one of them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_what_was_spent_is_said_when_it_is_stopped(gateway: FakeGateway) -> None:
    gateway.stop_at = 20
    result = verify(gateway, "--concurrency", "1")
    assert result.exit_code == 1
    assert "Stopped. Spent: 20 requests, about " in result.stderr


def test_own_conversations_are_read_and_a_time_in_them_is_found(gateway: FakeGateway, tmp_path: Path) -> None:
    data = tmp_path / "own.jsonl"
    records = [
        {
            "session_id": str(session),
            "messages": [{"role": "system", "content": f"It is 12:0{turn}. " + "Rules. " * 30}]
            + [{"role": "user", "content": f"{session}"}] * turn,
        }
        for session in range(5)
        for turn in range(1, 5)
    ]
    data.write_text("\n".join(map(json.dumps, records)))
    result = verify(gateway, "--data", str(data), "--json")
    assert "changing_front" in codes(result)
    data.write_text("{}")
    assert "no conversation of four turns or more" in verify(gateway, "--data", str(data)).stderr
    data.write_text("nonsense")
    assert "line 1: " in verify(gateway, "--data", str(data)).stderr


def test_the_table_is_for_people(gateway: FakeGateway) -> None:
    out = verify(gateway).stdout
    assert out.startswith(("Affinity works", "The effect is missing", "With affinity it is worse"))
    assert "\n   4  " in out
    assert "Spent: 57 requests" in out


def test_the_command_that_homing_up_prints_is_one() -> None:
    file = "pools: {p: {served_name: m, replicas: [{id: a, address: '10.0.0.1:80'}]}}\n"
    (line,) = [line for line in ready_block(parse(file, "f"), 1.0).splitlines() if "homing verify" in line]
    parsed = command.make_context("verify", line.split()[2:]).params
    assert (parsed["url"], parsed["model"]) == ("http://127.0.0.1:8080", "m")
    assert parsed["api"] == "http://127.0.0.1:8600"
