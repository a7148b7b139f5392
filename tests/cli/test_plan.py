"""`homing plan`, by the file alone and by an API of a few lines."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from homing.cli.main import main
from tests.http_serving import answering

ONE_POOL = "pools: {p: {replicas: [{id: a, address: '10.0.0.1:80'}, {id: b, address: '10.0.0.2:80'}]}}\n"
TWO_POOLS = ONE_POOL[:-2] + ", q: {replicas: [{id: a, address: '10.0.0.1:80'}]}}\n"
PLAN = {
    "pool": "p",
    "hash_moved": 0.25,
    "hash_least": 0.2,
    "sessions": 100,
    "sessions_moved": 0,
    "sessions_draining": 30,
    "shares": [{"replica": "a", "before": 1.0, "after": 0.75}, {"replica": "gpu-b", "before": 0.0, "after": 0.25}],
}


@pytest.fixture
def homing(tmp_path):
    def run(*arguments, text=ONE_POOL):
        file = tmp_path / "homing.yaml"
        file.write_text(text)
        return CliRunner().invoke(main, ["plan", "-c", str(file), *arguments])

    return run


class FakeControl:
    def __init__(self):
        self.asked = []
        self.status, self.answer = 200, {"pools": [PLAN]}


@pytest.fixture
def control():
    fake = FakeControl()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            fake.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(fake.status)
            self.end_headers()
            self.wfile.write(json.dumps(fake.answer).encode())

        def log_message(self, *_):
            pass

    with answering(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        fake.url = f"http://{address}"
        yield fake


def test_a_plan_in_words(control, homing):
    result = homing("--add", "c=10.0.0.3:80", "--drain", "p/a", "--remove", "b", "--api", control.url)
    assert result.output.splitlines() == [
        "pool p: 0 of 100 sessions move, 30 end where they are",
        "  without a picker 25.0% of the sessions would move by the hash (no hash can do with less than 20.0%)",
        "  a      100.0% ->  75.0% of the hash",
        "  gpu-b    0.0% ->  25.0% of the hash",
    ]
    assert result.exit_code == 0
    assert control.asked == [
        (
            "/api/plan",
            {
                "add": [{"pool": "p", "id": "c", "address": "10.0.0.3:80", "weight": 1}],
                "remove": [{"pool": "p", "id": "b"}],
                "drain": [{"pool": "p", "id": "a"}],
            },
        )
    ]


def test_a_plan_for_machines(control, homing):
    assert json.loads(homing("--remove", "b", "--json", "--api", control.url).output) == {"pools": [PLAN]}


def test_a_refusal_is_one_line(control, homing):
    control.status, control.answer = 422, {"detail": "there is no replica x in the pool p"}
    result = homing("--remove", "x", "--api", control.url)
    assert (result.exit_code, result.output) == (1, "Error: there is no replica x in the pool p\n")


def test_by_the_file_alone_sessions_are_not_known(homing):
    lines = homing("--add", "c=10.0.0.3:80", "--offline").output.splitlines()
    assert lines[0] == "pool p: no picker says how many sessions there are"
    assert "(no hash can do with less than 33.3%)" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["a", "b", "c"]
    result = homing("--remove", "x", "--offline")
    assert (result.exit_code, result.output) == (1, "Error: there is no replica x in the pool p\n")


@pytest.mark.parametrize(
    ("arguments", "text", "why"),
    [
        ((), ONE_POOL, "say what is to change"),
        (("--add", "c"), ONE_POOL, "give [POOL/]ID=HOST:PORT"),
        (("--remove", "a"), TWO_POOLS, "in which pool? Say POOL/a; pools: p, q"),
    ],
)
def test_wrong_usage_exits_with_2(homing, arguments, text, why):
    result = homing(*arguments, "--offline", text=text)
    assert result.exit_code == 2
    assert why in result.output
