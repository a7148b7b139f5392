"""The comparison of routing in small: everything starts, nothing is lost, all do the same work. No times."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench.placement.workloads import TRACE_PACE
from bench.routing import drawing
from bench.routing.__main__ import main
from bench.routing.client import Answer, AskedError
from bench.routing.contenders import contenders
from bench.routing.load import UNFINISHED, Outcome
from bench.routing.page import html
from bench.routing.replicas import Load, Sample
from bench.routing.report import LATE_S, Figures, Report, figures, overview, quantile, table
from bench.routing.stand import Conditions, Run, Seen
from bench.routing.work import Speaker, Work
from bench.routing.workloads import WORKLOADS, NoTraceError, Shape

SMALL = ("--load", "0.6", "--until-s", "40", "--time-scale", "20", "--grace", "40", "--no-peers")
TRACE = '{"timestamp": %d, "input_length": %d, "output_length": 20, "hash_ids": [%s]}\n'


def measured(tmp_path: Path, workload: str, *names: str) -> Report:
    only = [argument for name in names for argument in ("--contender", name)]
    argv = (sys.executable, "-m", "bench.routing", "run", "--workload", workload, *SMALL, *only, "--out", str(tmp_path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode((tmp_path / f"{workload}-0.6.json").read_bytes(), type=Report)


def test_in_small_all_do_the_same_work_and_nothing_is_lost(tmp_path: Path):
    names = ("ring hash", "homing, ids issued", "homing, no ids, KV events", "homing, 2 gateways of 2 pickers")
    report = measured(tmp_path, "chat", *names)
    assert [f.contender for f in report.figures] == list(names)
    work = WORKLOADS["chat"](Shape(load=0.6, until_s=40.0), Speaker())
    assert (report.digest, report.turns, report.sessions) == (work.digest(), len(work.turns), work.sessions)
    wanted = sum(turn.prompt_tokens for turn in work.turns)
    for one in report.figures:
        assert (one.lost, one.unfinished, one.fail_opens, one.prompt_tokens) == ({}, 0, 0, wanted), one.contender
        assert 0 < one.hit_rate < 1
        assert set(one.in_flight) == {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
    keeping = [f.moved for f in report.figures if f.contender != "homing, no ids, KV events"]
    assert keeping == [0, 0, 0]
    assert "<h2>chat, load 0.6" in html([report], [])


def test_in_small_nothing_is_lost_while_replicas_come_and_go(tmp_path: Path):
    report = measured(tmp_path, "fleet", "round robin", "homing")
    wanted = sum(turn.prompt_tokens for turn in WORKLOADS["fleet"](Shape(load=0.6, until_s=40.0), Speaker()).turns)
    for one in report.figures:
        assert (one.lost, one.unfinished, one.prompt_tokens) == ({}, 0, wanted), one.contender
        joined = one.in_flight["gpu-5"] + one.in_flight["gpu-6"]
        assert any(joined), one.contender
        assert one.in_flight["gpu-5"][0] == 0


@pytest.mark.parametrize("name", ["chat", "shared", "agents", "fleet", "slow"])
def test_a_workload_is_the_same_from_the_same_seed_only(name: str):
    def digest(seed: int) -> str:
        return WORKLOADS[name](Shape(until_s=20.0, seed=seed), Speaker()).digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_a_later_turn_holds_what_the_turn_before_was_answered():
    work = WORKLOADS["chat"](Shape(until_s=60.0), Speaker())
    turns: dict[int, list[tuple[str, ...]]] = {}
    for turn in work.turns:
        texts = tuple(message.content for message in turn.messages)
        for earlier in turns.get(turn.session, [])[-1:]:
            assert texts[: len(earlier)] == earlier
        turns.setdefault(turn.session, []).append((*texts, turn.answer))
    assert max(map(len, turns.values())) > 2


def test_prompts_of_the_trace_share_the_blocks_that_it_says(tmp_path: Path):
    file = tmp_path / "trace.jsonl"
    file.write_text(TRACE % (0, 1100, "7, 8, 9") + TRACE % (1400, 1700, "7, 8, 10, 11"))
    first, second = WORKLOADS["trace"](Shape(load=1 / TRACE_PACE, trace=file), Speaker()).turns
    assert (first.due_s, second.due_s) == (0.0, 1.4)
    assert first.session == second.session
    assert first.messages[0] == second.messages[0]
    same = 512 * 4 - 1
    assert first.messages[1].content[:same] == second.messages[1].content[:same]
    assert first.messages[1].content[same : 2 * same] != second.messages[1].content[same : 2 * same]
    assert 1100 <= first.prompt_tokens < 1130
    with pytest.raises(NoTraceError):
        WORKLOADS["trace"](Shape(), Speaker())


def test_every_contender_of_the_issue_is_there():
    found = contenders(Path("bin"))
    assert {"round robin", "least request", "ring hash", "Maglev", "sglang-router, cache_aware"} < set(found)
    policies = ("consistent_hash", "cache_aware", "sticky_least_loaded", "kv_aware")
    assert {f"vllm-router, {policy}" for policy in policies} < set(found)
    assert sum(contender.ours for contender in found.values()) == 8


def test_an_answer_is_read_in_whatever_parts_it_comes():
    events = (
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"two words"}}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,"total_tokens":42,'
        b'"prompt_tokens_details":{"cached_tokens":32}}}\n\ndata: [DONE]\n\n'
    )
    answer = Answer()
    for byte in events:
        answer.take(bytes([byte]))
    assert (answer.text, answer.prompt_tokens, answer.cached_tokens, answer.done) == ("two words", 40, 32, True)
    with pytest.raises(AskedError):
        Answer().take(b"data: nothing\n")


def ended(turn: int, ttft_s: float, replica: str = "a", why: str = "") -> Outcome:
    return Outcome(turn, turn % 2, float(turn), 0.01, ttft_s, ttft_s + 1, replica, 100, 60, 1, why)


def run_of(*outcomes: Outcome) -> Run:
    load = Load(1, 2, 1000, 600)
    seen = [Seen(at, Sample({"a": load}, 1.0, 1.0, 0.0)) for at in (0.0, 5.0)]
    return Run("ours", list(outcomes), 3, 9.0, seen, {"gateway": 1.0}, 2.0, 0.5, 0)


def test_what_did_not_end_counts_with_the_time_until_then():
    work = Work("chat", (), 1, 1)
    outcomes = [*(ended(i, 1.0) for i in range(8)), ended(8, 50.0, why=UNFINISHED), ended(9, 2.0, why="status 503")]
    told = figures(run_of(*outcomes), work, Conditions(time_scale=8.0))
    assert (told.p50_s, told.p90_s, told.p99_s) == (1.0, 50.0, 50.0)
    assert (told.unfinished, told.lost, told.prompt_tokens, told.hit_rate) == (1, {"status 503": 1}, 800, 0.6)
    assert (told.in_flight, told.cpu_share, told.moved) == ({"a": [3, 3]}, {"gateway": 0.5}, 3)
    assert told.replicas_late_s == pytest.approx(0.008)
    assert not told.late


def test_the_busiest_replica_is_set_against_the_mean():
    outcomes = [ended(0, 1.0, "a"), ended(1, 1.0, "a"), ended(2, 1.0, "a"), ended(3, 1.0, "b")]
    assert figures(run_of(*outcomes), Work("chat", (), 1, 2), Conditions()).imbalance == 1.5


def test_a_run_on_a_busy_machine_is_not_told():
    work, conditions = Work("chat", (), 1, 1), Conditions()
    good = figures(run_of(ended(0, 2.0)), work, conditions)
    busy = msgspec.structs.replace(good, contender="late", p90_s=0.1, generator_late_s=0.01, replicas_late_s=0.75)
    report = Report("chat", 0.7, 0, 1, 1, "d", conditions, "m", [], [good, busy])
    assert "| late | the machine was too busy: 0.75 s late" in table(report)
    assert "| ours | **2.00** | **2.00** | **2.00** |" in table(report)
    assert "late |  |" in overview([report])
    assert drawing.LATE_S == LATE_S


@pytest.mark.parametrize("option", ["--load", "--until-s", "--speed", "--time-scale"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_run_that_would_not_end_is_not_begun(option: str, value: str):
    outcome = CliRunner().invoke(main, ["run", option, value])
    assert outcome.exit_code == 2
    assert "is not in the range" in outcome.output


def test_of_several_draws_the_middle_and_both_ends_are_told():
    good = figures(run_of(ended(0, 2.0)), Work("chat", (), 1, 1), Conditions())
    reports = [
        Report("chat", 0.7, seed, 1, 1, "d", Conditions(), "m", [], [msgspec.structs.replace(good, p90_s=p90)])
        for seed, p90 in enumerate((3.0, 1.0, 2.5))
    ]
    assert [report.stem for report in reports] == ["chat-0.7", "chat-0.7.seed1", "chat-0.7.seed2"]
    assert overview(reports).splitlines()[2] == "| ours | **2.50** (1.00-3.00) / **2.00** (2.00-2.00) |"
    assert "**chat, load 0.7, seed 2**" in table(reports[2])
    once = msgspec.structs.replace(good, contender="once", p90_s=0.5)
    told = overview([reports[0].with_(once), *reports[1:]])
    assert "| once | 0.50 / 2.00 |" in told
    assert "| ours | **2.50** (" in told


def test_what_is_measured_again_replaces_what_was():
    good = figures(run_of(ended(0, 2.0)), Work("chat", (), 1, 1), Conditions())
    report = Report("chat", 0.7, 0, 1, 1, "d", Conditions(), "m", [], [])
    again: Figures = msgspec.structs.replace(good, p90_s=7.0)
    assert [f.p90_s for f in report.with_(good).with_(again).figures] == [7.0]


def test_the_quantile_is_a_value_that_was_there():
    assert quantile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert quantile([], 0.9) == 0.0


def test_sessions_have_names_of_their_own_in_each_work():
    work = Work("chat", (), 2, 1)
    assert len({work.session_id(0), work.session_id(1), replace(work, name="slow").session_id(0)}) == 3
