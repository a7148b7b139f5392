"""`homing check`: exit codes, and what goes where."""

import json

import pytest
from click.testing import CliRunner, Result

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
    )


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
    }


def test_a_bad_file_is_one_line_a_problem_on_stderr_and_exit_2(check):
    result = check(BAD)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        'homing.yaml:6: pools.qwen-72b.replicas[1].id: found "gpu-a" again (pools.qwen-72b.replicas[0].id, line 6),'
        " allowed: an id that no other replica of the pool has\n"
        "homing.yaml:10: helth: found an unknown key (did you mean health?), allowed: listen, admin, xds, api,"
        " expose_decisions, sessions, tenants, health, pools\n"
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
            "allowed": "listen, admin, xds, api, expose_decisions, sessions, tenants, health, pools",
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
