"""`homing check`: exit codes, and what goes where."""

import json
import re
import subprocess
import sys

import pytest
from authority import Authority
from click.testing import CliRunner, Result
from published_templates import published

from homing.cli.config_file import InvalidConfig, load, read
from homing.cli.main import main
from homing.core.config import MAX_FILE_BYTES, ConfigError, Problem

GOOD = """\
listen: 0.0.0.0:80
pools:
  qwen-72b:
    served_name: Qwen2.5-72B-Instruct
    aliases: [chat]
    replicas: [{id: gpu-a, address: 10.0.1.11:8000}, {id: gpu-b, address: vllm-b:8000}]
  llama-8b:
    hash: maglev
    replicas: [{id: gpu-c, address: 10.0.1.13:8000}]
"""
BAD = GOOD.replace("gpu-b", "gpu-a") + "helth: {}\n"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Runs `homing check` in an empty directory, with `text` as homing.yaml."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | bytes | None, *arguments: str) -> Result:
        if text is not None:
            (tmp_path / "homing.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        return CliRunner().invoke(main, ["check", *arguments])

    return run


def test_a_good_file_is_summed_up(check):
    result = check(GOOD)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "homing.yaml: valid; 2 pools, 3 replicas\n"
        "  pool qwen-72b: 2 replicas, serves Qwen2.5-72B-Instruct, chat (ring)\n"
        "  pool llama-8b: 1 replica, serves llama-8b (maglev)\n"
        "  listen on 0.0.0.0:80\n"
        "  admin on 127.0.0.1:9901\n"
        "  xds on 127.0.0.1:18000\n"
        "  api on 127.0.0.1:8600\n"
        "  pins in memory: enough for one gateway, several need sessions.pins\n"
    )


def test_of_a_store_of_pins_nothing_is_shown(check):
    result = check(GOOD + "sessions: {pins: redis://cache.internal:6379, secret: env:NOT_SET}\n")
    assert result.exit_code == 0
    assert result.stdout.endswith("  pins in Redis\n")
    assert "cache" not in result.stdout


NAMES_FILES = """\
tls:
  listen: {cert: file:good.pem, key: file:good-key.pem}
  api: {cert: file:good.pem, key: file:other-key.pem}
  xds: {cert: file:good.pem, key: file:good-key.pem, client_ca: file:nowhere/ca.pem}
tokens: {admin: file:short, fleet: env:NOT_SET}
sessions: {secret: file:gone, signed: {keys: [file:short, file:gone-too]}}
pools: {p: {engine: {api_key: file:folder, ca: file:ca.pem}, replicas: [{id: a, address: 'https://10.0.1.11:8000'}]}}
"""


def test_certificates_and_tokens_that_cannot_be_used_here_are_named_and_are_no_failure(check, tmp_path):
    authority = Authority(tmp_path)
    authority.issue("good")
    authority.issue("other")
    (tmp_path / "short").write_text("secret")
    (tmp_path / "folder").mkdir()
    result = check(NAMES_FILES)
    assert result.exit_code == 0
    assert [line.strip() for line in result.stdout.splitlines() if "cannot be used here" in line] == [
        "cannot be used here: tls.xds.client_ca: file:nowhere/ca.pem: no such file or directory",
        "cannot be used here: tokens.admin: file:short: shorter than 16 bytes",
        "cannot be used here: sessions.signed.keys[1]: file:gone-too: no such file or directory",
        "cannot be used here: sessions.secret: file:gone: no such file or directory",
        "cannot be used here: pools.p.engine.api_key: file:folder: is a directory",
        f"cannot be used here: tls.api: {tmp_path}/good.pem, {tmp_path}/other-key.pem:"
        " the key does not fit the certificate",
    ]


def test_certificates_and_tokens_that_can_be_used_are_not_spoken_of(check, tmp_path):
    Authority(tmp_path).issue("good")
    (tmp_path / "token").write_text("x" * 16)
    said = "tls: {api: {cert: file:good.pem, key: file:good-key.pem, client_ca: file:ca.pem}}\n"
    result = check(GOOD + said + "tokens: {admin: file:token}\n", "--json")
    assert (result.exit_code, json.loads(result.stdout)["unusable"]) == (0, [])


def test_a_good_file_as_json(check):
    result = check(GOOD, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "file": "homing.yaml",
        "ok": True,
        "problems": [],
        "pools": [
            {
                "id": "qwen-72b",
                "names": ["Qwen2.5-72B-Instruct", "chat"],
                "hash": "ring",
                "replicas": ["gpu-a", "gpu-b"],
            },
            {"id": "llama-8b", "names": ["llama-8b"], "hash": "maglev", "replicas": ["gpu-c"]},
        ],
        "listeners": {
            "listen": "0.0.0.0:80",
            "admin": "127.0.0.1:9901",
            "xds": "127.0.0.1:18000",
            "api": "127.0.0.1:8600",
        },
        "templates": [],
        "pins": "memory",
        "drift": [],
        "unusable": [],
    }


def test_a_bad_file_is_one_line_a_problem_on_stderr_and_exit_2(check):
    result = check(BAD)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        'homing.yaml:6: pools.qwen-72b.replicas[1].id: found "gpu-a" again (pools.qwen-72b.replicas[0].id, line 6),'
        " allowed: an id that no other replica of the pool has\n"
        "homing.yaml:10: helth: found an unknown key (did you mean health?), allowed: listen, admin, xds, api,"
        " tls, tokens, expose_decisions, sessions, tenants, auto, health, control, pools\n"
    )


def test_a_bad_file_as_json_is_on_stdout_and_exit_2(check):
    result = check(BAD, "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    report = json.loads(result.stdout)
    assert (report["ok"], report["pools"], report["listeners"]) == (False, [], {})
    assert report["problems"] == [
        {
            "file": "homing.yaml",
            "line": 6,
            "key": "pools.qwen-72b.replicas[1].id",
            "found": '"gpu-a" again (pools.qwen-72b.replicas[0].id, line 6)',
            "allowed": "an id that no other replica of the pool has",
        },
        {
            "file": "homing.yaml",
            "line": 10,
            "key": "helth",
            "found": "an unknown key (did you mean health?)",
            "allowed": "listen, admin, xds, api, tls, tokens, expose_decisions, sessions, tenants, auto, health,"
            " control, pools",
        },
    ]


def test_the_file_is_named_by_an_option(check, tmp_path):
    (tmp_path / "other.yaml").write_text("pools: {}")
    assert check(GOOD, "-c", "other.yaml").stderr.startswith("other.yaml:1: pools: found an empty mapping")


def test_a_missing_file_is_one_line(check):
    result = check(None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "homing.yaml: found no such file or directory, allowed: a file that can be read (-c FILE)\n"


def test_a_missing_file_as_json_has_no_line(check):
    (problem,) = json.loads(check(None, "--json").stdout)["problems"]
    assert (problem["file"], problem["line"], problem["found"]) == ("homing.yaml", None, "no such file or directory")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".", ".: found is a directory, allowed: a file that can be read (-c FILE)\n"),
        ("/dev/null", "/dev/null:1: found an empty file, allowed: a mapping with the key pools\n"),
        ("/dev/zero", "/dev/zero:1: found more than 1048576 bytes, allowed: up to 1048576 bytes\n"),
    ],
)
def test_what_is_no_file_is_one_line(check, name, expected):
    result = check(None, "-c", name)
    assert (result.exit_code, result.stderr) == (2, expected)


def test_a_file_that_is_not_utf_8_is_one_line(check):
    result = check(b"listen: \xff")
    assert (result.exit_code, result.stderr) == (2, "homing.yaml:1: found the byte 0xff, allowed: UTF-8 text\n")


def test_the_largest_file_is_read_whole(check):
    padding = "#" * (MAX_FILE_BYTES - len(GOOD) - 1)
    assert check(f"{GOOD}{padding}\n").exit_code == 0


def test_load_turns_problems_into_a_click_error_with_exit_code_2(tmp_path):
    path = tmp_path / "homing.yaml"
    path.write_text("pools: {}")
    with pytest.raises(InvalidConfig) as caught:
        load(str(path))
    assert caught.value.exit_code == 2
    assert caught.value.problems == (Problem(str(path), 1, "pools", "an empty mapping", "a mapping of 1 to 200 pools"),)


def test_a_name_that_no_file_can_have_is_a_problem():
    with pytest.raises(ConfigError) as caught:
        read("a\0b")
    assert [(p.line, p.found) for p in caught.value.problems] == [(None, "embedded null byte")]


WITH_TEMPLATE = """\
pools:
  m:
    template: {{{source}}}
    replicas: [{{id: gpu-a, address: '{address}'}}]
"""
DEVELOPERS_VANISH = "{% for m in messages if m.role != 'developer' %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_a_template_in_a_file_is_probed_and_its_warnings_told(check, tmp_path):
    (tmp_path / "t.jinja").write_text(published("trl", "qwen2_5"))
    result = check(WITH_TEMPLATE.format(source="file: t.jinja", address="127.0.0.1:9"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1:5] == [
        "  pool m: 1 replica, serves m (ring)",
        "    template (file t.jinja): note that",
        "      - developer messages vanish",
        "      - without a system message the template puts in one of its own",
    ]


def test_a_template_that_cannot_be_had_says_why_and_exits_1(check, tmp_path):
    result = check(WITH_TEMPLATE.format(source="directory: models/m", address="127.0.0.1:9"), "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    report = json.loads(result.stdout)
    assert (report["ok"], report["templates"]) == (
        True,
        [{"pool": "m", "source": "directory models/m", "record": None, "warnings": [],
          "trouble": "models/m: no such directory"}],
    )  # fmt: skip


@pytest.fixture
def engine(tmp_path):
    """The address of a simulated replica of the model `m`."""
    (tmp_path / "t.jinja").write_text(DEVELOPERS_VANISH)
    command = [sys.executable, "-m", "homing", "sim", "--model", "m", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--chat-template", str(tmp_path / "t.jinja")], stderr=subprocess.PIPE, text=True
    ) as process:
        yield next(found[1] for line in process.stderr if (found := re.search(r"serves m on ([\d.:]+)", line)))
        process.terminate()


def test_engines_are_asked_only_when_asked_to(check, engine):
    text = WITH_TEMPLATE.format(source="source: engine", address=engine)
    assert json.loads(check(text, "--json").stdout)["templates"] == []
    (template,) = json.loads(check(text, "--json", "--engine").stdout)["templates"]
    assert (template["source"], template["trouble"], template["record"]["developer"]) == ("engine", "", "dropped")
    assert template["warnings"][0] == "developer messages vanish"


def test_an_engine_that_is_not_there_says_so(check):
    result = check(WITH_TEMPLATE.format(source="source: engine", address="127.0.0.1:9"), "--engine")
    assert result.exit_code == 1
    assert "    template (engine): 127.0.0.1:9: /tokenize: ConnectError\n" in result.stdout
