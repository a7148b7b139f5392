"""`homing render nginx`: what it prints, and what docs/nginx.md says of it. Real NGINX runs it in tests/e2e."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homing.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "nginx.md").read_text()
FILE = """
pools:
  qwen-72b:
    served_name: Qwen2.5-72B-Instruct
    aliases: [chat, default, ~odd]
    replicas: [{id: gpu-a, address: 10.0.1.11:8000, weight: 2}, {id: gpu-b, address: "[::1]:8000"}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "homing.yaml"
    path.write_text(FILE)
    return path


def render(file: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["render", "nginx", "-c", str(file), *flags])


def test_the_page_shows_the_list_as_it_is(file: Path) -> None:
    (shown,) = re.findall(r"--list\n(.*?)^\$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == render(file, "--list").stdout


def test_every_fragment_begins_and_ends_with_its_name(file: Path) -> None:
    text = render(file, "--all-fragments").stdout
    listed = [line for line in render(file, "--list").stdout.splitlines() if not line.startswith(" ")]
    stamped = r"^(?:#|//) fragment (\S+) \(homing \S+ [0-9a-f]{8}\)$"
    assert re.findall(stamped, text, re.MULTILINE) == listed
    assert re.findall(r"^(?:#|//) end of fragment (\S+)$", text, re.MULTILINE) == listed


def test_servers_have_their_weights_and_ids(file: Path) -> None:
    text = render(file, "--fragment", "upstream:qwen-72b").stdout
    assert "server 10.0.1.11:8000 weight=2 max_fails=1 fail_timeout=5s;  # gpu-a" in text
    assert "server [::1]:8000 weight=1 max_fails=1 fail_timeout=5s;  # gpu-b" in text


def test_names_that_mean_something_to_a_map_are_patterns(file: Path) -> None:
    text = render(file, "--no-njs", "--fragment", "http").stdout
    assert [f'"~^{name}$" qwen-72b;' in text for name in ("chat", "default", "\\~odd")] == [True] * 3


ODD = {
    "one": ("~$m{;}'`#*?", ["$request_id", "include", "volatile", "'q'", "a;b", "{x}", "M", "x" * 256], "[::1]:1"),
    "2.odd_x-.": ("m", ["*.x"], "localhost:2"),
}


@pytest.mark.parametrize(
    "flags", [("--picker", "127.0.0.1:1", "--log", "127.0.0.1:2"), ("--no-njs",)], ids=["njs", "plain"]
)
def test_nginx_takes_names_that_mean_something_to_it(file: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Also two that differ by case, one that is very long, and paths with blanks."""
    pools = {
        pool: {"served_name": name, "aliases": aliases, "replicas": [{"id": f"r:{pool}", "address": address}]}
        for pool, (name, aliases, address) in ODD.items()
    }
    file.write_text(json.dumps({"pools": pools}))
    out = tmp_path / "a directory"
    paths = ("--out", str(out), "--access-log", str(tmp_path / "a log"))
    module = ("--njs-module", "/usr/lib/nginx/modules/ngx_http_js_module.so")
    assert render(file, *paths, *module, *flags).exit_code == 0
    argv = ("/usr/sbin/nginx", "-t", "-e", "stderr", "-c", str(out / "nginx.conf"), "-g", f"pid {tmp_path}/pid;")
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr


def test_one_header_in_two_spellings_is_looked_at_once(file: Path) -> None:
    text = render(file, "--fragment", "http").stdout
    assert text.count("map $http_session_id ") == 1


def test_an_unknown_fragment_is_wrong_usage(file: Path) -> None:
    result = render(file, "--fragment", "nope")
    assert result.exit_code == 2
    assert "'nope' is not one of script, http, upstream:qwen-72b, server" in result.stderr


def test_the_whole_goes_into_a_directory(file: Path, tmp_path: Path) -> None:
    assert render(file, "--out", str(tmp_path / "new" / "out")).exit_code == 0
    assert {p.name for p in (tmp_path / "new" / "out").iterdir()} == {"nginx.conf", "homing.js"}
    assert render(file, "--no-njs", "--out", str(tmp_path / "plain")).exit_code == 0
    assert {p.name for p in (tmp_path / "plain").iterdir()} == {"nginx.conf"}
