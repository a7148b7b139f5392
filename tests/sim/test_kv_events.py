import json

import httpx
import msgspec
import pytest
import zmq

from homing.sim.kv_events import EventFormat, EventLog
from homing.sim.prefix_cache import Cleared, Removed, Stored
from homing.sim.tokenizer import token_ids

STORED = Stored((b"\0" * 15 + b"\x07", b"\0" * 15 + b"\x08"), b"", token_ids([1, 2, 3, 4]), "tenant")
CHILD = Stored((b"\0" * 15 + b"\x09",), b"\0" * 15 + b"\x08", token_ids([5, 6]))
REMOVED = Removed((b"\0" * 15 + b"\x07",))


def payload(form, events):
    return msgspec.msgpack.decode(EventLog(2, form).add(events, 12.5)[1])


def test_maps_have_the_fields_of_vllm():
    assert payload(EventFormat.MAP, [STORED, CHILD, REMOVED, Cleared()]) == [
        12.5,
        [
            {
                "type": "BlockStored",
                "block_hashes": [7, 8],
                "parent_block_hash": None,
                "token_ids": [1, 2, 3, 4],
                "block_size": 2,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [["tenant"], None],
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            },
            {
                "type": "BlockStored",
                "block_hashes": [9],
                "parent_block_hash": 8,
                "token_ids": [5, 6],
                "block_size": 2,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None],
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            },
            {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 0},
            {"type": "AllBlocksCleared"},
        ],
        0,
    ]


def test_arrays_have_the_order_of_older_versions():
    assert payload(EventFormat.ARRAY, [CHILD, REMOVED, Cleared()]) == [
        12.5,
        [["BlockStored", [9], 8, [5, 6], 2, None, "GPU"], ["BlockRemoved", [7], "GPU"], ["AllBlocksCleared"]],
        0,
    ]


def test_the_log_numbers_batches_and_keeps_the_latest():
    log = EventLog(2, EventFormat.MAP, keep=3)
    batches = [log.add([Cleared()], float(i)) for i in range(5)]
    assert [int.from_bytes(number, "big") for number, _ in batches] == [0, 1, 2, 3, 4]
    assert log.since(0) == batches[2:]
    assert log.since(4) == batches[4:]
    assert log.since(9) == []


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


def receive(socket):
    assert socket.poll(5000), "nothing came"
    return socket.recv_multipart()


@pytest.mark.parametrize("form", ["map", "array"])
def test_a_subscriber_learns_which_blocks_the_replica_holds(start_sim, context, tmp_path, form):
    """It connects to the subscriber, as vLLM does where the endpoint names a host."""
    with context.socket(zmq.SUB) as subscriber:
        subscriber.subscribe(b"kv")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        config = {"enable_kv_cache_events": True, "endpoint": f"tcp://127.0.0.1:{port}", "topic": "kv"}
        sim = start_sim("--kv-events-config", json.dumps(config), "--kv-events-format", form, "--itl-ms", "0")
        prompt = "once upon a time there was a long prompt that fills some blocks of the cache"
        body = {"prompt": prompt, "max_tokens": 1, "return_token_ids": True}
        # The connection is made while the replica runs: what is sent before it is lost.
        batch = None
        for salt in range(50):
            answer = httpx.post(f"{sim.url}/v1/completions", json=body | {"cache_salt": str(salt + 1)}).json()
            if subscriber.poll(100):
                batch = subscriber.recv_multipart()
                break
        assert batch is not None
        topic, number, data = batch
        ids = answer["choices"][0]["prompt_token_ids"]
        (event,) = msgspec.msgpack.decode(data)[1]
        tokens = event["token_ids"] if form == "map" else event[3]
        assert (topic, int.from_bytes(number, "big")) == (b"kv", salt)
        assert tokens == ids[: len(ids) // 16 * 16]


def test_missed_batches_can_be_replayed_and_a_restart_begins_at_zero(start_sim, context, tmp_path):
    replay = f"ipc://{tmp_path}/replay"
    config = {"enable_kv_cache_events": True, "endpoint": f"ipc://{tmp_path}/events", "replay_endpoint": replay}
    sim = start_sim("--kv-events-config", json.dumps(config), "--itl-ms", "0", "--admin", "127.0.0.1:0")

    def replayed(start):
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(replay)
            dealer.send_multipart((b"", start.to_bytes(8, "big")))
            numbers = []
            while True:
                _, _, number, data = receive(dealer)
                if number == b"\xff" * 8:
                    return numbers
                numbers.append(int.from_bytes(number, "big"))
                assert msgspec.msgpack.decode(data)[1]

    for word in ("one", "two", "six"):
        httpx.post(f"{sim.url}/v1/completions", json={"prompt": f"{word} " * 40, "max_tokens": 1})
    assert replayed(0) == [0, 1, 2]
    assert replayed(2) == [2]
    sim.restart()
    assert replayed(0) == []
    httpx.post(f"{sim.url}/v1/completions", json={"prompt": "ten " * 40, "max_tokens": 1})
    assert replayed(0) == [0]
