"""Faults on demand, over HTTP."""

import json
import socket
import threading
import time

import httpx
import pytest

CHAT = "/v1/chat/completions"


def ask(**fields):
    return {"messages": [{"role": "user", "content": "word " * 40}]} | fields


FLAGS = ("--admin", "127.0.0.1:0", "--ttft-ms", "1", "--itl-ms", "1")


@pytest.fixture(scope="module")
def shared(module_sims):
    return module_sims(*FLAGS)


@pytest.fixture
def sim(shared):
    """As new, but for its life and its cache."""
    yield shared
    admin(shared, "DELETE", "/fault")
    admin(shared, "PUT", "/speed", slowdown=1.0)


def admin(sim, method, path, status=200, **fields):
    response = httpx.request(method, sim.admin_url + path, json=fields or None)
    assert response.status_code == status, response.text
    return response.json()


def test_at_first_nothing_is_wrong(start_sim):
    sim = start_sim(*FLAGS)
    assert admin(sim, "GET", "/status") == {"life": 1, "slowdown": 1.0, "fault": None, "fault_left": None}


def test_503_as_often_as_asked_and_only_on_the_paths_asked(sim):
    admin(sim, "PUT", "/fault", kind="unavailable", count=2)
    assert httpx.get(sim.url + "/health").status_code == 200
    codes = [httpx.post(sim.url + CHAT, json=ask()).status_code for _ in range(3)]
    assert codes == [503, 503, 200]
    admin(sim, "PUT", "/fault", kind="unavailable", paths=["/health", "/metrics"])
    assert httpx.get(sim.url + "/health").status_code == 503
    assert httpx.post(sim.url + CHAT, json=ask()).status_code == 200
    admin(sim, "DELETE", "/fault")
    assert httpx.get(sim.url + "/health").status_code == 200


def test_a_hanging_request_gets_no_answer_and_is_let_go_when_the_fault_is_taken_away(sim):
    admin(sim, "PUT", "/fault", kind="hang", count=2)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(sim.url + CHAT, json=ask(), timeout=0.3)
    ended = []

    def wait():
        try:
            httpx.post(sim.url + CHAT, json=ask(), timeout=10)
        except httpx.TransportError as error:
            ended.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(250):
        if admin(sim, "GET", "/status")["fault_left"] == 0:
            break
        time.sleep(0.02)
    assert thread.is_alive()
    admin(sim, "DELETE", "/fault")
    thread.join(5)
    assert ended == [httpx.RemoteProtocolError]


@pytest.mark.parametrize(
    ("kind", "error"),
    [("reset", httpx.ReadError), ("cut", httpx.RemoteProtocolError), ("garbage", httpx.RemoteProtocolError)],
)
@pytest.mark.parametrize("after", [0, 3])
def test_a_connection_ends_badly_before_or_in_a_stream(sim, kind, error, after):
    admin(sim, "PUT", "/fault", kind=kind, after=after, count=1)
    received = 0

    def stream():
        nonlocal received
        with httpx.stream("POST", sim.url + CHAT, json=ask(stream=True, max_tokens=50)) as response:
            for chunk in response.iter_raw():
                received += chunk.count(b"data: ")

    with pytest.raises(error):
        stream()
    assert (received > 0) == (after > 0)
    assert received < 50
    assert httpx.post(sim.url + CHAT, json=ask()).status_code == 200
    assert sim.metric("vllm:num_requests_running") == 0


def test_a_whole_answer_can_be_cut_too(sim):
    admin(sim, "PUT", "/fault", kind="reset")
    with pytest.raises(httpx.ReadError):
        httpx.post(sim.url + CHAT, json=ask())


def test_a_slow_replica_takes_longer_by_its_own_measure(sim):
    def ttft():
        before = sim.metric("vllm:time_to_first_token_seconds_sum")
        httpx.post(sim.url + CHAT, json=ask(max_tokens=1))
        return sim.metric("vllm:time_to_first_token_seconds_sum") - before

    admin(sim, "PUT", "/speed", slowdown=200.0)
    assert 0.19 < ttft() < 5
    assert admin(sim, "GET", "/status")["slowdown"] == 200.0


def test_a_lost_cache_is_cold(sim):
    admin(sim, "DELETE", "/cache")

    def cached():
        return httpx.post(sim.url + CHAT, json=ask()).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [cached(), cached()] == [0, 80]
    admin(sim, "DELETE", "/cache")
    assert [cached(), cached()] == [0, 80]


def test_a_restarted_replica_is_the_same_and_has_forgotten_everything(sim):
    life = admin(sim, "GET", "/status")["life"]
    first = httpx.post(sim.url + "/v1/responses", json={"input": "word " * 40}).json()
    sim.restart(down_s=0.3)
    assert admin(sim, "GET", "/status")["life"] == life + 1
    assert sim.metric("vllm:generation_tokens_total") == 0
    again = {"input": "go on", "previous_response_id": first["id"]}
    assert httpx.post(sim.url + "/v1/responses", json=again).status_code == 404
    response = httpx.post(sim.url + CHAT, json=ask())
    assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert response.headers["x-sim-replica"] == "r1"


def test_a_restart_breaks_open_streams_and_refuses_connections_while_it_is_down(start_sim):
    sim = start_sim(*FLAGS)

    def stream():
        with httpx.stream("POST", sim.url + CHAT, json=ask(stream=True, max_tokens=100_000)) as response:
            for number, _ in enumerate(response.iter_raw()):
                if number == 0:
                    admin(sim, "POST", "/restart", down_s=30.0)

    def connect():
        for _ in range(100):
            socket.create_connection(("127.0.0.1", sim.port), timeout=1).close()
            time.sleep(0.02)

    with pytest.raises(httpx.TransportError):
        stream()
    with pytest.raises(ConnectionError):
        connect()
    assert sim.stop() == 0


@pytest.mark.parametrize("body", [b"{", b'{"kind": "fire"}', b'{"kind": "cut", "x": 1}', b"{}"])
def test_a_fault_that_is_none_is_refused_and_changes_nothing(sim, body):
    response = httpx.put(sim.admin_url + "/fault", content=body)
    assert response.status_code == 400
    assert json.loads(response.content)["error"]["code"] == 400
    assert admin(sim, "GET", "/status")["fault"] is None
