"""The real process over HTTP."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time

import httpx
import pytest

CHAT = "/v1/chat/completions"
LONG = "word " * 200


def ask(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def events(text):
    """The data of each server-sent event."""
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def eventually(check, timeout_s=5.0):
    """Wait until `check` holds."""
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.02)


@pytest.fixture
def sim(quick_sim):
    return quick_sim


@pytest.fixture
def client(sim):
    with httpx.Client(base_url=sim.url, timeout=20) as client:
        yield client


def test_a_chat_is_answered_in_openais_shape(client):
    response = client.post(CHAT, json=ask("hello there", max_tokens=3))
    body = response.json()
    assert response.status_code == 200
    assert response.headers["x-sim-replica"] == "r1"
    assert (body["object"], body["model"], body["system_fingerprint"]) == ("chat.completion", "m", "sim-r1")
    assert len(body["choices"][0]["message"]["content"].split()) == 3
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {
        "prompt_tokens": 14,
        "completion_tokens": 3,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None},
        "completion_tokens_details": None,
    }


def test_the_next_turn_reuses_the_whole_blocks_of_the_one_before(client):
    history = [{"role": "user", "content": LONG}]
    first = client.post(CHAT, json={"messages": history, "max_tokens": 50}).json()
    history += [first["choices"][0]["message"], {"role": "user", "content": "more"}]
    second = client.post(CHAT, json={"messages": history, "max_tokens": 1}).json()
    computed = first["usage"]["prompt_tokens"] + 49  # the last token's KV is not there
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == computed // 16 * 16


def test_a_stream_has_the_same_words_as_the_whole_answer_and_ends_with_usage(client):
    whole = client.post(CHAT, json=ask("hello", max_completion_tokens=6)).json()
    request = ask("hello", max_completion_tokens=6, stream=True, stream_options={"include_usage": True})
    response = client.post(CHAT, json=request)
    *chunks, usage, done = events(response.text)
    chunks = [json.loads(chunk) for chunk in chunks]
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["choices"][0] for chunk in chunks]
    assert "".join(d["delta"]["content"] for d in deltas) == whole["choices"][0]["message"]["content"]
    assert [d["finish_reason"] for d in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1]["finish_reason"] == "length"
    assert all("usage" not in chunk for chunk in chunks)
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 6


def test_completions_take_text_texts_and_token_ids(client):
    def complete(prompt, **fields):
        response = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4, **fields})
        assert response.status_code == 200
        return response.json()

    one = complete("once upon", return_token_ids=True)
    ids = one["choices"][0]["prompt_token_ids"]
    text = one["choices"][0]["text"]
    assert len(one["choices"][0]["token_ids"]) == 4
    assert complete(ids)["choices"][0]["text"] == text
    assert [c["text"] for c in complete(["once upon", "once upon"])["choices"]] == [text, text]
    assert [c["text"] for c in complete([ids, ids])["choices"]] == [text, text]
    assert complete("once upon", echo=True)["choices"][0]["text"] == "once upon" + text
    several = complete("once upon", n=3)
    assert [c["index"] for c in several["choices"]] == [0, 1, 2]
    assert len({c["text"] for c in several["choices"]}) == 3
    assert several["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert several["usage"]["completion_tokens"] == 12


def test_a_stop_string_ends_the_answer(client):
    free = client.post("/v1/completions", json={"prompt": "once", "max_tokens": 20}).json()["choices"][0]["text"]
    stop = free.split()[7]
    choice = client.post("/v1/completions", json={"prompt": "once", "max_tokens": 20, "stop": stop}).json()["choices"][
        0
    ]
    assert choice["text"] == free[: free.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_models_and_health(client):
    assert client.get("/health").content == b""
    assert client.get("/version").json() == {"version": "0.32.0"}
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["owned_by"], model["max_model_len"]) == ("m", "model", "vllm", 4194304)


BAD = {
    "unknown model": (
        {"model": "x", "messages": []},
        404,
        {
            "message": "The model `x` does not exist. Valid aliases: m.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        },
    ),
    "no messages": (
        {},
        400,
        {
            "message": "1 validation error:\n"
            "  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 0 items>'}",
            "type": "Bad Request",
            "param": "body.messages",
            "code": 400,
        },
    ),
    "no tokens": (
        ask("x", max_tokens=0),
        400,
        {
            "message": "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            "type": "BadRequestError",
            "param": "max_tokens",
            "code": 400,
        },
    ),
    "empty salt": (
        ask("x", cache_salt=""),
        400,
        {
            "message": "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
            "type": "BadRequestError",
            "param": "cache_salt",
            "code": 400,
        },
    ),
    "output too long": (
        ask("x", max_tokens=5_000_000),
        400,
        {
            "message": "max_tokens=5000000 cannot be greater than max_model_len=4194304. Please request fewer output "
            "tokens. (parameter=max_tokens, value=5000000)",
            "type": "BadRequestError",
            "param": "max_tokens",
            "code": 400,
        },
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_answered_as_vllm_does(client, name):
    request, status, error = BAD[name]
    response = client.post(CHAT, json=request)
    assert (response.status_code, response.json()) == (status, {"error": error})
    assert response.headers["x-sim-replica"] == "r1"


def test_a_text_past_the_context_is_not_counted_to_its_end(start_sim):
    sim = start_sim("--max-model-len", "8")
    error = httpx.post(f"{sim.url}/v1/completions", json={"prompt": "word" * 50}).json()["error"]
    assert error == {
        "message": "This model's maximum context length is 8 tokens. However, your prompt contains at least 9 input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        "prompt. (parameter=input_tokens, value=9)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }


def test_ids_past_the_context_are_counted_and_output_is_cut_to_it(start_sim):
    sim = start_sim("--max-model-len", "8")

    def complete(ids):
        return httpx.post(f"{sim.url}/v1/completions", json={"prompt": [65] * ids, "max_tokens": 4}).json()

    assert complete(50)["error"]["message"].startswith(
        "This model's maximum context length is 8 tokens. However, your prompt contains 50 input tokens, which"
    )
    assert complete(8)["error"]["message"] == "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"
    assert complete(6)["usage"]["completion_tokens"] == 2


def test_an_unknown_path_or_method_is_answered_in_the_frameworks_shape(client):
    for method, path, status, words in (("GET", "/nope", 404, "Not Found"), ("GET", CHAT, 405, "Method Not Allowed")):
        response = client.request(method, path)
        assert response.status_code == status
        assert response.json() == {"detail": words}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"[]", b'{"messages": 5}'])
def test_a_body_that_is_no_request_is_a_400(client, body):
    response = client.post(CHAT, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "Bad Request"


def test_an_8_mb_body_is_served_and_reused(sim, client):
    text = "x" * 8_000_000
    before = sim.metric("vllm:prefix_cache_hits_total")
    assert client.post(CHAT, json=ask(text)).json()["usage"]["prompt_tokens"] == 2_000_010
    again = client.post(CHAT, json=ask(text)).json()["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == 2_000_000
    assert sim.metric("vllm:prefix_cache_hits_total") - before == 2_000_000


def test_a_prompt_that_can_never_fit_is_refused(start_sim):
    sim = start_sim("--num-gpu-blocks-override", "11")
    response = httpx.post(sim.url + CHAT, json=ask("x" * 1000))
    assert response.status_code == 400
    assert "maximum context length is 160 tokens" in response.json()["error"]["message"]


@pytest.mark.parametrize("flags", [["--itl-ms", "50"], ["--preset", "a100-llama-8b", "--speed", "0.1"]])
def test_a_client_that_leaves_ends_its_sequences(start_sim, flags):
    sim = start_sim(*flags)
    with httpx.stream("POST", sim.url + CHAT, json=ask("x", max_tokens=100_000, stream=True, n=2)) as response:
        lines = response.iter_lines()  # held: the connection lasts as long as it
        next(lines)
        assert sim.metric("vllm:num_requests_running") == 2
    eventually(lambda: sim.metric("vllm:num_requests_running") == 0)
    assert sim.metric('vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"}') == 2
    assert sim.metric("vllm:kv_cache_usage_perc") == 0


def test_a_client_that_leaves_before_a_whole_answer_ends_its_sequence(start_sim):
    sim = start_sim("--ttft-ms", "60000")
    with socket.create_connection(("127.0.0.1", sim.port)) as connection:
        body = json.dumps(ask("x")).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        eventually(lambda: sim.metric("vllm:num_requests_running") == 1)
    eventually(lambda: sim.metric("vllm:num_requests_running") == 0)


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_client_that_does_not_read_costs_bounded_memory_and_still_gets_all(start_sim):
    sim = start_sim("--ttft-ms", "0", "--itl-ms", "0")
    tokens = 40_000  # about 9 MB of events when each is sent alone
    with socket.create_connection(("127.0.0.1", sim.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        before = resident_bytes(sim.process.pid)
        body = json.dumps(ask("x", max_tokens=tokens, stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        eventually(lambda: sim.metric("vllm:generation_tokens_total") == tokens, 30)
        assert resident_bytes(sim.process.pid) - before < 6 << 20
        received = b""
        while part := connection.recv(1 << 20):
            received += part
    assert received.count(b'"finish_reason":"length"') == 1
    assert b"data: [DONE]" in received


async def test_2000_streams_at_once(start_sim):
    sim = start_sim("--ttft-ms", "10", "--itl-ms", "2000", "--max-num-seqs", "4096")
    body = json.dumps(ask("x", max_tokens=1000, stream=True)).encode()
    request = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async def open_stream():
        reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
        writer.write(request)
        assert b" 200 " in await reader.readuntil(b"\r\n")
        await reader.readuntil(b"data: {")
        return writer

    writers = await asyncio.wait_for(asyncio.gather(*(open_stream() for _ in range(2000))), 60)
    running = await asyncio.to_thread(sim.metric, "vllm:num_requests_running")
    memory = resident_bytes(sim.process.pid)
    for writer in writers:
        writer.close()
    assert running == 2000
    assert memory < 250 << 20
    await asyncio.to_thread(eventually, lambda: sim.metric("vllm:num_requests_running") == 0, 15)


def test_with_a_preset_a_second_turn_has_its_first_token_earlier(start_sim):
    sim = start_sim("--preset", "a100-llama-8b", "--speed", "0.1", "--time-scale", "10")
    times, reused = [], []
    for _ in range(2):
        response = httpx.post(sim.url + CHAT, json=ask("word " * 4000, max_tokens=1), timeout=30)
        reused.append(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        times.append(sim.metric("vllm:time_to_first_token_seconds_sum"))
    assert reused == [0, 8000]
    assert times[0] > 5 * (times[1] - times[0])


def test_time_scale_makes_simulated_seconds_shorter(start_sim):
    sim = start_sim("--ttft-ms", "60000", "--time-scale", "1000")
    assert httpx.post(sim.url + CHAT, json=ask("x", max_tokens=1), timeout=5).status_code == 200
    assert sim.metric("vllm:time_to_first_token_seconds_sum") == pytest.approx(60)


def test_the_same_seed_says_the_same_on_every_replica(start_sim):
    texts = {
        httpx.post(start_sim(*flags).url + CHAT, json=ask("tell me")).json()["choices"][0]["message"]["content"]
        for flags in (("--seed", "3"), ("--seed", "3"), ("--seed", "4"))
    }
    assert len(texts) == 2


@pytest.mark.parametrize("streaming", [False, True])
def test_sigterm_ends_it_cleanly_even_with_a_stream_open(start_sim, streaming):
    sim = start_sim("--itl-ms", "100")
    with contextlib.ExitStack() as stack:
        if streaming:
            request = ask("x", max_tokens=100_000, stream=True)
            response = stack.enter_context(httpx.stream("POST", sim.url + CHAT, json=request))
            lines = response.iter_lines()  # held: the connection lasts as long as it
            next(lines)
        began = time.monotonic()
        assert sim.stop() == 0
        assert time.monotonic() - began < 3
    assert sim.process.stderr is not None
    assert "Traceback" not in sim.process.stderr.read()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--listen", "nowhere"], "must be HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "must be HOST:PORT"),
        (["--block-size", "0"], "--block-size"),
        (["--itl-ms", "-1"], "--itl-ms"),
        (["--preset", "h100-llama-8b", "--itl-ms", "1"], "--itl-ms do not go with --preset"),
        (["--num-gpu-blocks-override", "3", "--max-model-len", "99"], "--max-model-len 99: the KV cache holds 32"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(flags, words):
    done = subprocess.run([sys.executable, "-m", "homing", "sim", *flags], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--kv-events-config", "{", "--kv-events-config: Input data was truncated"),
        ("--kv-events-config", '{"x": 1}', "--kv-events-config: Object contains unknown field `x`"),
        ("--kv-events-config", '{"enable_kv_cache_events": true, "endpoint": "ipc:///no/dir"}', "--kv-events-config: "),
        ("--chat-template", "strict.jinja", "--chat-template: line 1: "),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(tmp_path, flag, value, words):
    (tmp_path / "strict.jinja").write_text("{% if %}")
    command = [sys.executable, "-m", "homing", "sim", "--listen", "127.0.0.1:0", flag, value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "homing", "sim", "--listen", f"127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: --listen 127.0.0.1:{port}: Address already in use")
