"""Which processes `homing up` starts, with which arguments; and how Envoy is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from homing.cli import demo
from homing.cli.child import Child
from homing.cli.children import VARIABLE, Installation, children, listeners
from homing.cli.envoy_process import EnvoyStart
from homing.cli.ready_block import ready_block
from homing.control.envoy_config import ADS, Source
from homing.core.config import Config, parse
from homing.ext_proc.pins import secret

FILE = """
listen: 0.0.0.0:8080
pools:
  big:
    served_name: Big-72B
    aliases: [chat]
    replicas: [{id: gpu-a, address: 10.0.1.11:8000}, {id: near, address: 127.0.0.1:9000}]
  small:
    replicas: [{id: near, address: "localhost:9001"}, {id: far, address: vllm.internal:8000}]
"""
PYTHON = (sys.executable, "-P", "-m", "homing")


def say(line: str) -> None:
    pass


def installation(config: Config, run: Path, *, pickers: int = 1, simulate: bool = True) -> Installation:
    simulated = demo.simulated(config) if simulate else ()
    return Installation(config, Path("/etc/homing.yaml"), run, simulated, pickers, Path("/usr/bin/envoy"), 2, "s" * 64)


async def arguments(child: Child) -> tuple[str, ...]:
    return tuple(await child.argv())


def by_name(all_of: tuple[Child, ...]) -> dict[str, Child]:
    return {child.name: child for child in all_of}


def test_the_demos_file_is_a_configuration() -> None:
    config = parse(demo.file_text([9100, 9101, 40000]), "homing.yaml")
    assert str(config.listen) == "127.0.0.1:8080"
    assert config.expose_decisions
    (pool,) = config.pools
    assert (pool.id, pool.served_name, pool.aliases) == ("demo", "demo-model", ("chat",))
    assert [(r.id, str(r.address)) for r in pool.replicas] == [
        ("sim-0", "127.0.0.1:9100"),
        ("sim-1", "127.0.0.1:9101"),
        ("sim-2", "127.0.0.1:40000"),
    ]


def test_only_replicas_on_this_machine_are_simulated() -> None:
    simulated = demo.simulated(parse(FILE, "f"))
    assert [(r.pool, r.id, str(r.address), r.model) for r in simulated] == [
        ("big", "near", "127.0.0.1:9000", "Big-72B"),
        ("small", "near", "localhost:9001", "small"),
    ]


async def test_processes_and_their_arguments(tmp_path: Path) -> None:
    started = by_name(children(installation(parse(FILE, "f"), tmp_path, pickers=2), say))
    assert list(started) == ["big/near", "small/near", "control", "picker-0", "picker-1", "standby", "envoy"]
    run = str(tmp_path)
    assert await arguments(started["big/near"]) == (
        *PYTHON,
        *("sim", "--listen", "127.0.0.1:9000", "--id", "near", "--model", "Big-72B", "--preset", "h100-llama-8b"),
    )
    assert await arguments(started["control"]) == (
        *PYTHON,
        *("control", "-c", "/etc/homing.yaml", "--state-dir", f"{run}/state", "--sds", f"{run}/sds"),
        *("--picker", f"unix:{run}/picker-0.sock", "--picker", f"unix:{run}/picker-1.sock"),
        *("--standby", f"unix:{run}/standby.sock"),
        *("--picker-http", f"picker-0=unix:{run}/picker-0-http.sock"),
        *("--picker-http", f"picker-1=unix:{run}/picker-1-http.sock"),
        *("--picker-http", f"standby=unix:{run}/standby-http.sock"),
    )
    assert await arguments(started["standby"]) == (
        *PYTHON,
        *("ext-proc", "-c", "/etc/homing.yaml", "--name", "standby"),
        *("--listen", f"unix:{run}/standby.sock", "--http", f"unix:{run}/standby-http.sock"),
        *("--control", "http://127.0.0.1:8600"),
        *("--sibling", f"unix:{run}/picker-0-http.sock", "--sibling", f"unix:{run}/picker-1-http.sock"),
        *("--shard", f"unix:{run}/picker-0.sock", "--shard", f"unix:{run}/picker-1.sock"),
    )


def test_pickers_share_a_secret_that_no_argument_and_no_text_shows(tmp_path: Path) -> None:
    made = installation(parse(FILE, "f"), tmp_path)
    assert "s" * 64 not in repr(made)
    started = by_name(children(made, say))
    assert {name for name, child in started.items() if "HOMING_SECRET" in child.env} == {"picker-0", "standby"}
    assert VARIABLE == secret.VARIABLE


def test_who_waits_for_whom(tmp_path: Path) -> None:
    started = by_name(children(installation(parse(FILE, "f"), tmp_path), say))
    assert {name: child.after for name, child in started.items() if child.after} == {
        "control": ("big/near", "small/near"),
        "envoy": ("control",),
    }
    assert [name for name, child in started.items() if child.ends_first] == ["envoy"]
    assert all(child.required for child in started.values())


def test_without_demo_nothing_is_simulated(tmp_path: Path) -> None:
    started = children(installation(parse(FILE, "f"), tmp_path, simulate=False), say)
    assert [child.name for child in started] == ["control", "picker-0", "standby", "envoy"]


def test_every_port_is_checked_under_its_key() -> None:
    config = parse(FILE, "f")
    assert [(w.key, str(w.address)) for w in listeners(config, demo.simulated(config))] == [
        ("listen", "0.0.0.0:8080"),
        ("admin", "127.0.0.1:9901"),
        ("xds", "127.0.0.1:18000"),
        ("api", "127.0.0.1:8600"),
        ("replica near", "127.0.0.1:9000"),
        ("replica near", "localhost:9001"),
    ]


class ControlAnswers:
    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)

    async def __call__(self) -> bool:
        return self._answers.pop(0)


def envoy_start(run: Path, *answers: bool, said: list[str] | None = None) -> tuple[EnvoyStart, list[Source]]:
    sources: list[Source] = []

    def bootstrap(source: Source) -> str:
        sources.append(source)
        return f"bootstrap {len(sources)}"

    state = run / "state"
    state.mkdir()
    told = [] if said is None else said
    start = EnvoyStart(Path("/usr/bin/envoy"), run, state, 2, ControlAnswers(*answers), bootstrap, told.append)
    return start, sources


async def test_envoy_starts_from_control(tmp_path: Path) -> None:
    start, sources = envoy_start(tmp_path, True)
    argv = await start()
    assert argv[:4] == ("/usr/bin/envoy", "-c", f"{tmp_path}/envoy.yaml", "--disable-hot-restart")
    assert argv[-2:] == ("--concurrency", "2")
    assert (tmp_path / "envoy.yaml").read_text() == "bootstrap 1"
    assert sources == [ADS]


async def test_envoy_starts_from_the_last_good_files_while_control_is_away(tmp_path: Path) -> None:
    said: list[str] = []
    start, sources = envoy_start(tmp_path, False, True, said=said)
    for name in ("lds.json", "cds.json"):
        (tmp_path / "state" / name).write_text("{}")
    await start()
    await start()
    assert sources == [Source(directory=str(tmp_path / "state")), ADS]
    assert said == ["control is away: envoy starts from the last good configuration"]


@pytest.mark.parametrize("present", [(), ("lds.json",), ("cds.json",)])
async def test_without_all_last_good_files_envoy_waits_for_control(tmp_path: Path, present: tuple[str, ...]) -> None:
    start, sources = envoy_start(tmp_path, False)
    for name in present:
        (tmp_path / "state" / name).write_text("{}")
    await start()
    assert sources == [ADS]


def test_the_ready_block_has_what_to_paste() -> None:
    text = ready_block(parse(FILE, "f"), 3.21)
    assert text.startswith("homing is ready after 3.2 s\n")
    assert "  models       Big-72B (also chat), small\n" in text
    assert "  API          http://127.0.0.1:8600/docs\n" in text
    assert "  metrics      http://127.0.0.1:8600/metrics\n" in text
    assert "  Envoy admin  http://127.0.0.1:9901/\n" in text
    first, second = (line.strip() for line in text.splitlines() if "curl" in line)
    assert first == (
        "curl -i http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json'"
        """ -d '{"model": "Big-72B", "messages": [{"role": "user", "content": "Hello, who are you?"}]}'"""
    )
    assert ' -H "x-session-id: ID-FROM-THE-FIRST-ANSWER" ' in second
    assert text.endswith("\nCtrl-C ends it")
