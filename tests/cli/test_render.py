"""`homing render envoy`: what it prints, what it refuses, and what docs/drop-in.md says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from homing.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "drop-in.md").read_text()
MINIMAL = ("http-filters", "virtual-host", "pickers", "cluster:vllm")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The file that the page begins with."""
    path = tmp_path / "homing.yaml"
    path.write_text(block("yaml"))
    return str(path)


def block(language: str, containing: str = "") -> str:
    """The page's first code block of that language with that text in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return next(b for b in blocks if containing in b)


def render(file: str, *flags: str) -> Result:
    return CliRunner().invoke(main, ["render", "envoy", "-c", file, *flags])


def names(text: str) -> list[str]:
    return re.findall(r"^# fragment (\S+) \(homing \S+ [0-9a-f]{8}\)$", text, re.MULTILINE)


def test_the_page_shows_the_list_as_it_is(file: str) -> None:
    assert block("console", "--list").partition("\n")[2] == render(file, "--list").stdout


def test_the_page_s_four_fragments_are_as_long_as_it_says(file: str) -> None:
    result = render(file, *(flag for name in MINIMAL for flag in ("--fragment", name)))
    assert names(result.stdout) == list(MINIMAL)
    assert len(result.stdout.splitlines()) == pytest.approx(480, abs=20)
    assert "**One pool, the shortest way: four fragments**, some 480 lines" in PAGE


def test_sagemakers_requests_are_left_alone_where_the_file_says_so(file: str) -> None:
    assert "session_begins" in render(file).stdout
    with Path(file).open("a") as more:
        more.write("sessions: {sagemaker: off}\n")
    text = render(file).stdout
    assert "session_begins" not in text
    assert "local session_ttl_s = 0 " in text


def test_every_fragment_begins_and_ends_with_its_name(file: str) -> None:
    text = render(file, "--all-fragments").stdout
    listed = [line for line in render(file, "--list").stdout.splitlines() if not line.startswith(" ")]
    assert names(text) == listed
    assert re.findall(r"^# end of fragment (\S+)$", text, re.MULTILINE) == listed


def test_fragments_come_in_the_order_asked_for(file: str) -> None:
    text = render(file, "--fragment", "route", "--fragment", "listener").stdout
    assert names(text) == ["route", "listener"]
    assert text.count("---\n") == 1


def test_pickers_and_their_standby_are_what_was_said(file: str) -> None:
    flags = ("--picker", "unix:/run/homing-1/picker.sock", "--standby", "[::1]:9002")
    text = render(file, "--fragment", "pickers", *flags).stdout
    assert '{"pipe": {"path": "/run/homing-1/picker.sock"}}' in text
    assert '{"socket_address": {"address": "::1", "port_value": 9002}}' in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--fragment", "cluster:nope"), "'cluster:nope' is not one of listener, http-connection-manager,"),
        (("--picker", "picker.sock"), "--picker: 'picker.sock' is neither unix:/path nor host:port"),
        (("--standby", "unix:"), "--standby: 'unix:' is neither unix:/path nor host:port"),
        (("--picker", "host:70000"), "--picker: 'host:70000' is neither unix:/path nor host:port"),
    ],
)
def test_a_mistake_is_told_with_exit_code_2(file: str, flags: tuple[str, ...], said: str) -> None:
    result = render(file, *flags)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_wrong_is_told_with_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "homing.yaml"
    file.write_text("pools: {}\n")
    result = render(str(file))
    assert result.exit_code == 2
    assert "pools: found an empty mapping" in result.stderr


def test_the_unit_runs_the_command_as_it_is() -> None:
    """Every option that the page's unit uses exists, and its addresses are those that are rendered."""
    unit = block("ini")
    command = re.search(r"^ExecStart=\S+/homing (.+)$", unit, re.MULTILINE)
    assert command is not None
    help_text = CliRunner().invoke(main, ["ext-proc", "--help"]).stdout
    for option in re.findall(r"(--?[a-z]+) ", command[1]):
        assert option in help_text
    for instance in ("1", "2"):
        assert f"unix:{unit_socket(command[1], instance)}" in PAGE.replace(unit, "")


def unit_socket(command: str, instance: str) -> str:
    found = re.search(r"--listen unix:(\S+)", command)
    assert found is not None
    return found[1].replace("%i", instance)


def test_into_fills_in_what_is_marked_and_then_changes_nothing_more(tmp_path: Path) -> None:
    drop_in = Path(__file__).parents[2] / "compose" / "drop-in"
    once = render(str(drop_in / "homing.yaml"), "--into", str(drop_in / "envoy.yaml"))
    (tmp_path / "envoy.yaml").write_text(once.stdout)
    again = render(str(drop_in / "homing.yaml"), "--into", str(tmp_path / "envoy.yaml"))
    assert once.stdout == again.stdout
    expected = ["http-connection-manager", "http-filters", "virtual-host", "route", "cluster:vllm", "pickers"]
    assert re.findall(r"^ *# fragment (\S+) \(homing", once.stdout, re.MULTILINE) == expected


def test_into_refuses_a_file_with_nothing_marked_in_it(file: str) -> None:
    refused = render(file, "--into", file)
    assert refused.exit_code == 2
    assert "no place is marked" in refused.output


def test_an_envoy_of_some_pools_says_so_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "homing.yaml"
    file.write_text(
        "pools: {p: {replicas: [{id: a, address: '10.0.0.1:80'}]}}\ncontrol: {xds: ['10.0.0.1:1', 'b.c:2']}\n"
    )
    ads = ["render", "envoy", "-c", str(file), "--ads", "--node", "eu"]
    bootstrap = yaml.safe_load(CliRunner().invoke(main, [*ads, "--pool", "p"]).output)
    assert bootstrap["node"] == {"id": "eu", "cluster": "homing", "metadata": {"homing.pools": ["p"]}}
    (control,) = [c for c in bootstrap["static_resources"]["clusters"] if c["name"] == "homing-control"]
    (group,) = control["load_assignment"]["endpoints"]
    where = [e["endpoint"]["address"]["socket_address"] for e in group["lb_endpoints"]]
    assert where == [{"address": "10.0.0.1", "port_value": 1}, {"address": "b.c", "port_value": 2}]
    assert control["type"] == "STRICT_DNS"
    (ads_source,) = bootstrap["dynamic_resources"]["ads_config"]["grpc_services"]
    again = ads_source["envoy_grpc"]["retry_policy"]["retry_back_off"]
    assert again == {"base_interval": "0.25s", "max_interval": "2s"}  # Envoy's own is 30 s
    refused = CliRunner().invoke(main, [*ads, "--pool", "q"])
    assert (refused.exit_code, "there is no pool 'q'; there are p" in refused.output) == (2, True)
