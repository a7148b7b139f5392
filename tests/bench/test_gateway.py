"""The benchmark of gateways in small: everything starts, every answer is checked, the report is whole. No times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.gateway.contenders import Processes, _without_ext_proc
from bench.gateway.load import Plan, Result
from bench.gateway.measures import GATEWAYS, LOADS, RATIOS, Figures, Sample, wrong
from bench.gateway.report import Report
from bench.gateway.wire import MODEL, chat_body, conversation, request
from homing.core.history import read

PRODUCT = (*GATEWAYS[:-2], "the replica alone")


def test_in_small_every_answer_is_right(tmp_path: Path):
    file = tmp_path / "gateway.json"
    flags = ("--rounds", "1", "--seconds", "0.2", "--streams", "40", "--no-peers", "--json", str(file))
    argv = (sys.executable, "-m", "bench.gateway", *flags)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    assert report.wrong == {}
    expected = {(load.name, name) for load in LOADS for name in load.contenders if name in PRODUCT}
    assert {(s.load, s.contender) for s in report.samples} == expected
    assert all(s.result.requests > 0 for s in report.samples)
    assert report.streams is not None
    assert (report.streams.asked, report.streams.wrong, report.streams.fail_opens) == (40, {}, 0)
    assert "Every answer was right." in done.stdout
    shown = [ratio.name for ratio in RATIOS if f"| {ratio.name} |" in done.stdout]
    assert shown == [ratio.name for ratio in RATIOS if "router" not in ratio.name]


def test_wrong_answers_and_requests_without_the_picker_are_told():
    right, lost = Result(10, 1.0, 1.0, 2.0, {}), Result(10, 1.0, 1.0, 2.0, {"HTTP/1.1 503": 3})
    samples = [
        Sample("1 connection", "homing", 0, right, 1.0, 1.0, 0),
        Sample("1 connection", "homing", 1, lost, 1.0, 1.0, 2),
    ]
    assert wrong(samples) == {
        "homing, 1 connection: HTTP/1.1 503": 3,
        "homing, 1 connection: without the picker": 2,
    }


def test_both_data_planes_are_held_against_the_same():
    samples = [
        Sample(load, who, 0, Result(requests, 1.0, p50, p50 * 2, {}), us, 1.0, 0)
        for load in ("32 connections", "1 connection")
        for who, requests, p50, us in (
            ("bare Envoy", 1_000, 1.0, 30.0),
            ("homing", 400, 1.5, 75.0),
            ("NGINX with homing", 500, 1.25, 60.0),
        )
    ]
    figures, ratios = Figures(samples), {ratio.name: ratio for ratio in RATIOS}
    found = {name: ratio.value(figures) for name, ratio in ratios.items()}
    assert (found["header-first over bare Envoy"], found["NGINX: header-first over bare Envoy"]) == (0.4, 0.5)
    by_cpu = ratios["NGINX: header-first over bare Envoy"].by_cpu
    assert by_cpu is not None
    assert by_cpu(figures) == 0.5
    assert found["p50 added to bare Envoy, 1 connection"] == 0.5
    assert found["NGINX: p50 added to bare Envoy, 1 connection"] == 0.25
    assert found["NGINX: p99 added to bare Envoy, 1 connection"] == 0.5


@pytest.mark.parametrize("size", [300, 2_048, 400_000])
def test_bodies_have_their_size_and_name_the_model_last(size: int):
    body = chat_body(size)
    assert len(body) == size
    assert body.endswith(b'"model":"' + MODEL + b'"}')
    assert request(80, body, "s").endswith(b"\r\nx-session-id: s\r\n\r\n" + body)


def test_the_second_turn_of_a_conversation_goes_on_with_the_first():
    first, second = (read(body, (), b"seed").history for body in conversation(7, 2_048))
    assert first is not None
    assert second is not None
    assert second.earlier == (first.prompt,)
    assert 1_800 < len(conversation(7, 2_048)[1]) < 2_300


def test_the_filter_goes_wherever_it_stands():
    it = {"name": "homing", "typed_config": {}}
    other = {"name": "router", "typed_config": {}}
    host = {"name": "homing", "typed_per_filter_config": {"homing": {}, "homing.peek": {}}}
    assert _without_ext_proc({"filters": [it, other], "hosts": [host]}) == {
        "filters": [other],
        "hosts": [{"name": "homing", "typed_per_filter_config": {"homing.peek": {}}}],
    }


def test_plans_travel_as_json():
    plan = Plan(80, 1.0, 32)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_the_end_of_a_log_tells_why_something_did_not_start(tmp_path: Path):
    processes = Processes(tmp_path)
    processes.start("broken", (sys.executable, "-c", "print('no such port'); raise SystemExit(3)"))
    processes.running["broken"].wait(30)
    assert processes.last_words("broken") == "no such port\nit ended with code 3"
