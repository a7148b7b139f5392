"""The comparison of rules of placement: the same work for all, nothing lost; and what the product's rule promises.

Small, seeded, and no times: those are for docs/placement.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.placement.__main__ import contenders, main
from bench.placement.batching import Batching
from bench.placement.engine import BLOCK, Engine, Request, Running
from bench.placement.product import Homing
from bench.placement.report import behind, markdown, spread
from bench.placement.workloads import (
    agents,
    batching,
    chat,
    half_keyless,
    heavy,
    makers,
    named,
    scattered,
    shared,
    trace,
)
from bench.placement.world import Change, Result, Workload, World
from homing.core.placement.settings import Settings
from homing.sim.engines import EngineOptions, build_engine
from homing.sim.sequence import Sequence
from homing.sim.tokenizer import token_ids

CONTENDERS = [c.name for c in contenders()]


def contender(name: str):
    return next(c for c in contenders() if c.name == name)


def small(name: str = "small", **more: object) -> Workload:
    return Workload(name, chat(0.5, 60.0, seed=1, turns=(2, 6)), replicas=4, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_has_the_same_work_and_loses_none(name: str):
    workload = small()
    world = World(workload, contender(name))
    result = world.run()
    assert (result.served, result.broken) == (len(workload.requests), 0)
    assert sum(e.queried for e in world.engines) == sum(r.tokens for r in workload.requests)


@pytest.mark.parametrize("name", CONTENDERS)
def test_when_a_replica_dies_nothing_that_waits_is_lost(name: str):
    workload = small(changes=(Change(30.0, 1, joins=False),))
    result = World(workload, contender(name)).run()
    assert result.served == len(workload.requests)
    assert result.broken < 0.1 * result.served


@pytest.mark.parametrize("name", ["cache_aware", "homing_1", "homing_2"])
def test_runs_repeat_to_the_last_digit(name: str):
    assert World(small(), contender(name)).run() == World(small(), contender(name)).run()


@pytest.mark.parametrize(
    "make",
    [
        lambda: agents(6, 60.0),
        lambda: heavy(0.3, 60.0),
        lambda: shared(2.0, 30.0, tenants=5),
        lambda: named(chat(0.5, 20.0)),
        lambda: half_keyless(chat(0.5, 20.0)),
    ],
)
@pytest.mark.parametrize("placers", [1, 2, 8])
def test_the_product_serves_every_kind_of_workload_with_any_number_of_placers(
    make: Callable[[], list[Request]], placers: int
):
    requests = make()
    assert World(Workload("w", requests), Homing(placers)).run().served == len(requests)


def test_conversations_without_an_id_are_known_to_all_placers():
    requests = [replace(r, keyless=True) for r in chat(0.5, 60.0, seed=1, turns=(6, 12))]
    results = [World(Workload("w", requests, replicas=4), Homing(placers)).run() for placers in (1, 2, 8)]
    assert max(r.moved for r in results) <= 1, "by cost: nobody is taken for somebody else"
    assert min(r.hit_rate for r in results) > 0.95 * results[0].hit_rate


@pytest.mark.parametrize("placers", [1, 8])
def test_where_there_is_room_no_session_ever_moves(placers: int):
    assert World(Workload("light", agents(8, 240.0)), Homing(placers)).run().moved == 0


def test_under_overload_few_turns_move():
    """Moves evict others, who would move too: a rule that only compared costs would move half of them."""
    requests = agents(40, 240.0)
    result = World(Workload("full", requests, replicas=3), Homing(1)).run()
    assert result.moved < 0.05 * len(requests)


def test_a_scale_up_moves_nobody_and_fills_the_new_replica():
    requests = chat(1.0, 120.0, seed=3)
    world = World(Workload("more", requests, replicas=4, changes=(Change(60.0, 3, joins=True),)), Homing(1))
    result = world.run()
    share = world.engines[3].queried / sum(e.queried for e in world.engines)
    assert result.moved == 0
    assert 0.1 < share < 0.4


def test_a_failure_moves_the_sessions_that_lived_there_and_no_others():
    requests = chat(1.0, 120.0, seed=3)
    world = World(Workload("less", requests, replicas=4, changes=(Change(60.0, 2, joins=False),)), Homing(1))
    result = world.run()
    assert 0 < result.moved <= len({r.session for r in requests}) / 2


@pytest.mark.parametrize("ours", [Homing(1), Homing(4), Homing(1, exact=True)], ids=lambda ours: ours.name)
def test_a_shared_prompt_is_used_and_does_not_pile_sessions_up(ours: Homing):
    """Also where another picker sent the first one. Who has headers alone does not know of it."""
    requests = shared(6.0, 60.0, tenants=30)
    result = World(Workload("shared", requests), ours).run()
    unaware = World(Workload("shared", named(requests)), Homing(1, settings=Settings(read_first=False))).run()
    assert result.hit_rate > unaware.hit_rate + 0.1
    assert result.imbalance < 1.5


def test_a_half_as_fast_replica_is_given_less():
    world = World(Workload("slow", chat(1.0, 240.0, seed=3), replicas=4, speeds={1: 0.4}), Homing(1))
    world.run()
    queried = sorted((e.queried, e.name) for e in world.engines)
    assert queried[0][1] == "r1"


def test_caches_are_whole_blocks_and_never_the_last_token():
    def asked(blocks: tuple[int, ...], tokens: int) -> Request:
        return Request(0.0, "s", 0, tokens, 1, blocks)

    engine = Engine("r", cache_blocks=4)
    engine.touch((1, 2, 3))
    assert engine.match(asked((1, 2, 3), 3 * BLOCK + 5)) == 3 * BLOCK
    assert engine.match(asked((1, 2, 3), 3 * BLOCK)) == 2 * BLOCK
    assert engine.match(asked((9, 2, 3), 3 * BLOCK + 5)) == 0
    engine.touch((4, 5))
    assert engine.match(asked((1,), 2 * BLOCK)) == 0


def test_one_prefill_at_a_time():
    engine = Engine("r")
    request = Request(0.0, "s", 0, 8000, 10, ())
    one, two = Running(request, engine), Running(request, engine)
    engine.put(one, 0.0)
    engine.put(two, 0.5)
    assert engine.due == pytest.approx(1.0, rel=0.01)
    assert run_out(engine) == [one, two]
    assert two.first_token == pytest.approx(2 * one.first_token, rel=0.01)


def run_out(engine: Engine) -> list[Running]:
    """Until nothing is due any more. Who ended, in order."""
    ended = []
    while (due := engine.due) is not None:
        ended += engine.advance(due)
    return ended


class Endless:
    """An answer that only its limit ends."""

    stopped = False

    def take(self) -> int:
        return 1


def test_a_replica_that_batches_finds_what_it_computed_of_a_session():
    engine = Batching("r")
    first = Request(0.0, "s", 0, 1000, 30, (1,))
    engine.put(Running(first, engine), 0.0)
    run_out(engine)
    assert engine.match(Request(9.0, "s", 1, 1200, 10, (1, 2))) == 1024, "prompt and answer, in blocks of 16"
    assert engine.match(Request(9.0, "other", 1, 1200, 10, (1, 2))) == 512, "the block that both begin with"
    assert engine.match(Request(9.0, "s", 1, 1200, 10, (3, 4))) == 0, "a conversation that was begun anew"


def test_a_prompt_waits_for_memory_while_others_decode():
    engine = Batching("r")
    half = engine.cache_blocks * BLOCK // 2 + BLOCK
    one, two = (Running(Request(0.0, f"s{i}", 0, half, 5, ()), engine) for i in range(2))
    engine.put(one, 0.0)
    engine.put(two, 0.0)
    assert run_out(engine) == [one, two]
    assert one.first_token is not None
    assert two.first_token is not None
    assert two.first_token > 2 * one.first_token


@pytest.mark.parametrize("name", ["chat", "shared", "agents", "slow"])
def test_the_workloads_of_real_gateways_are_there_for_the_model(name: str):
    workload = batching(until_s=20.0)[name]()
    assert World(workload, Homing(1)).run().served == len(workload.requests) > 0


def test_a_replica_that_batches_takes_the_times_of_the_sim():
    """The same three prompts, one of two chunks, through the sim's own engine (`sim/batching.py`)."""
    prompts, answers = [3000, 500, 40], [20, 30, 10]
    model = Batching("r")
    runs = [
        Running(Request(0.0, f"s{i}", 0, tokens, answer, ()), model)
        for i, (tokens, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    for running in runs:
        model.put(running, 0.0)
    run_out(model)
    engine, _ = build_engine(EngineOptions(preset="a100-llama-8b", speed=0.5))
    sequences = []
    for i, (tokens, answer) in enumerate(zip(prompts, answers, strict=True)):
        sequences.append(Sequence(token_ids(range(10_000 * i, 10_000 * i + tokens)), answer, Endless()))
        engine.submit(sequences[-1], 0.0)
    while (due := engine.due_s) is not None:
        engine.advance(due)
    assert [r.first_token for r in runs] == pytest.approx([s.first_token_s for s in sequences])


def test_a_trace_is_read_as_it_is_published(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    entries = [
        {"timestamp": 0, "input_length": 1200, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 1800, "output_length": 7, "hash_ids": [0, 1, 2, 3]},
        {"timestamp": 4000, "input_length": 300, "output_length": 7, "hash_ids": [0]},
    ]
    path.write_text("\n".join(map(json.dumps, entries)))
    first, second, alone = trace(path, faster=2.0)
    assert (first.session, first.turn, second.session, second.turn, second.arrives) == ("m1", 0, "m1", 1, 1.5)
    assert (alone.session, alone.blocks, alone.answer) == ("u2", (0,), 7)
    assert len(makers(path)) == len(makers()) + 2


def test_every_turn_of_a_session_comes_to_the_picker_that_placed_it():
    """Ids are minted to fit the picker too. What one does not tell the others, only one knows."""
    requests, four = chat(0.5, 60.0, seed=1, turns=(6, 12)), Homing(4, exchange=False)
    World(Workload("w", requests, replicas=4), four).run()
    assert sum(len(placer.homes) for placer in four.placers) == len({r.session for r in requests})


def test_what_a_trace_wrote_at_one_moment_comes_within_its_step_in_the_same_order():
    written = [Request(at, f"s{i}", 0, 100, 1, ()) for i, at in enumerate([0.0] * 20 + [3.0] * 20)]
    came = scattered(written, 3.0, seed=1)
    times = [r.arrives for r in came]
    assert [r.session for r in came] == [r.session for r in written]
    assert times == sorted(set(times)), "no two at once"
    assert times[19] < 3.0 <= times[20]
    assert times[39] < 6.0
    assert times != [r.arrives for r in scattered(written, 3.0, seed=2)]


def test_the_table_marks_the_best_and_how_far_behind_ours_are():
    def result(p90: float, p99: float) -> Result:
        return Result(0.1, p90, p99, 0.1, 0.9, 1.0, 0, 10, 0, 60.0)

    results = {"w": {"other": result(1.0, 4.0), "homing_1": result(0.5, 2.0)}}
    assert markdown(results).splitlines()[-1] == "| w | 1.00 / 4.00 | **0.50** / **2.00** |"
    assert behind(results, ["homing_1"]) == {"w": {"homing_1": 0.5}}


def test_over_seeds_the_table_says_the_middle_and_how_far_it_goes():
    ratios = {"w": {"homing_1": [(1.0, 2.0), (0.5, 4.0), (3.0, 1.0)]}}
    assert spread(ratios).splitlines()[-1] == "| w | 1.00 (0.50-3.00) / 2.00 (1.00-4.00) |"


def test_another_seed_is_another_draw_of_every_workload():
    for name, make in makers(seed=1).items():
        assert make().requests != makers()[name]().requests


def test_the_commands_print_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bench.placement.__main__.chosen", lambda *_: [small()])
    out = tmp_path / "out.json"
    compared = CliRunner().invoke(main, ["compare", "--json", str(out)])
    assert compared.exit_code == 0, compared.output
    assert set(json.loads(out.read_text())["small"]) == set(CONTENDERS)
    seeded = CliRunner().invoke(main, ["seeds", "--seeds", "1"])
    assert seeded.exit_code == 0, seeded.output
    assert seeded.stdout.splitlines()[-1].startswith("| small | ")
    searched = CliRunner().invoke(main, ["search", "--constants", "leave_factor"])
    assert searched.exit_code == 0, searched.output
    assert searched.stdout.count("`leave_factor`") == 5
