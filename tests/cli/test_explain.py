"""`homing explain` against an API of a few lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner, Result

from homing.cli.main import main
from tests.http_serving import answering

HERE = {"replica": "a", "cost": 173.4, "terms": {"waiting": 0.0, "prefill": 173.4, "leaving": 0.0}}
ELSEWHERE = {"replica": "b", "cost": 4201.0, "terms": {"waiting": 0.0, "prefill": 192.0, "leaving": 4009.0}}
RECEIPT = {
    "picker": "picker-0",
    "pool": "p",
    "session": "5e55",
    "hash_owner": "b",
    "home": "a",
    "pinned": True,
    "idle_s": 61.0,
    "prompt_tokens": 192.0,
    "reason": "home",
    "choice": "a",
    "runner_up": "b",
    "weighed": False,
    "offers": [HERE, ELSEWHERE],
}
UNKNOWN = RECEIPT | {"home": None, "pinned": False, "idle_s": None, "reason": "hash", "weighed": True}
ALONE = {"reason": "fallback", "weighed": False, "hash_owner": None, "choice": None, "runner_up": None, "offers": []}
NOBODY = UNKNOWN | ALONE


class Control(HTTPServer):
    def __init__(self) -> None:
        self.answer: tuple[int, object] = (200, {"receipts": [RECEIPT], "complete": True})
        self.asked: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Control

    def do_GET(self) -> None:
        self.server.asked.append(dict(parse_qsl(urlsplit(self.path).query)))
        status, value = self.server.answer
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def control() -> Iterator[Control]:
    server = Control()
    with answering(server):
        yield server


def explain(control: Control, *arguments: str) -> Result:
    api = ("--api", f"http://127.0.0.1:{control.server_port}")
    return CliRunner().invoke(main, ["explain", "-c", "no-file", *api, "--session", "s", *arguments])


def test_a_receipt_in_words(control: Control) -> None:
    result = explain(control, "--model", "m", "--tenant", "t")
    assert control.asked == [{"session": "s", "model": "m", "tenant": "t"}]
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "pool p, picker picker-0, session 5e55",
            "  hash's owner  b",
            "  home          a (pinned, idle 1m 1s)",
            "  next turn     a (home), about 192 tokens; runner-up b",
            "  replica  cost  prefill  leaving",
            "  a         173      173        0",
            "  b        4201      192     4009",
        ],
    )


@pytest.mark.parametrize(
    ("receipt", "words"),
    [
        (UNKNOWN, "home          not known"),
        (UNKNOWN, "next turn     a (hash, by cost)"),
        (NOBODY, "hash's owner  nobody"),
        (NOBODY, "nobody can serve it (fallback)"),
    ],
)
def test_what_is_not_known_and_what_nobody_serves_is_said(control: Control, receipt: object, words: str) -> None:
    control.answer = (200, {"receipts": [receipt], "complete": True})
    assert words in explain(control).output


@pytest.mark.parametrize(
    ("model", "words"),
    [((), "no picker answers\n"), (("--model", "n"), "no picker answers, or none has a pool of the model n\n")],
)
def test_without_receipts_the_exit_code_is_1(control: Control, model: tuple[str, ...], words: str) -> None:
    control.answer = (200, {"receipts": [], "complete": True})
    assert (explain(control, *model).exit_code, explain(control, *model).output) == (1, words)
    assert explain(control, *model, "--json").exit_code == 1


def test_a_picker_that_does_not_answer_is_told_of(control: Control) -> None:
    control.answer = (200, {"receipts": [RECEIPT], "complete": False})
    result = explain(control)
    assert (result.exit_code, result.stderr) == (0, "not every picker answered\n")


def test_for_machines(control: Control) -> None:
    assert json.loads(explain(control, "--json").output) == {"receipts": [RECEIPT], "complete": True}


def test_what_the_service_does_not_take_is_one_line(control: Control) -> None:
    untaken = {
        "type": "string_too_long",
        "loc": ["query", "session"],
        "msg": "String should have at most 4096 characters",
    }
    control.answer = (422, {"detail": [untaken]})
    result = explain(control)
    assert (result.exit_code, result.output) == (1, "Error: session: String should have at most 4096 characters\n")


def test_an_address_that_is_none_is_wrong_usage(control: Control) -> None:
    result = explain(control, "--api", "http://[::")
    assert result.exit_code == 2
    assert "--api http://[::: " in result.output
