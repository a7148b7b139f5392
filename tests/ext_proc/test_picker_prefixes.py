"""What a picker tells the index of prefixes."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.fleet import DrainChanged, Fleet, HealthChanged, Pool, Replica
from homing.core.history import read
from homing.core.placement.counters import Counters
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.core.session import Homes
from homing.ext_proc.events import RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.metrics import Ttft
from homing.ext_proc.picker import Picker
from homing.ext_proc.prefixes import Prefixes

REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(3))
FLEET = Fleet((Pool("p", "served", replicas=REPLICAS),))
BODY = json.dumps({"messages": [{"role": "system", "content": "x" * 800}, {"role": "user", "content": "hi"}]}).encode()
FILE = "pools: {p: {replicas: [{id: a, address: 'h:1'}]}}"


def picker() -> Picker:
    prefixes = Prefixes(Index())
    placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: 0, prefixes.index)
    made = Picker(placer, lambda: 0.0, Ttft(CollectorRegistry()), prefixes=prefixes)
    config = parse(FILE, "homing.yaml")
    made.configure(config)
    made.adopt(FLEET)
    return made


def ask(picker: Picker) -> str:
    """Sends a keyless request; which replica was chosen."""
    exchange = Exchange(picker)
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": b"/v1/chat/completions"}
    exchange.receive(RequestHeadersReceived(headers, "served"))
    answer = exchange.receive(RequestBodyReceived(BODY))
    told = dict(answer.set_headers)  # type: ignore[union-attr]
    exchange.close()
    address = told["x-gateway-destination-endpoint"].decode().split(",")[0]
    return next(r.id for r in REPLICAS if r.address == address)


def prompt(picker: Picker) -> Prompt:
    said = read(BODY, (), picker.placer.seed("p", b""))
    assert said.prompt is not None
    return said.prompt


def test_a_request_whose_body_is_read_is_in_the_index_from_its_placement_on():
    making = picker()
    replica = ask(making)
    assert making.placer.prefixes.held("p", prompt(making), 0.0) == {replica: prompt(making).total}


def test_a_replica_that_stopped_answering_is_taken_to_be_cold():
    making = picker()
    replica = ask(making)
    making.adopt(FLEET.apply(DrainChanged("p", replica, True)))  # still serves its own
    assert making.placer.prefixes.held("p", prompt(making), 0.0) != {}
    making.adopt(FLEET.apply(HealthChanged("p", replica, False)))
    making.adopt(FLEET)
    assert making.placer.prefixes.held("p", prompt(making), 0.0) == {}


def test_an_engine_whose_counters_fall_is_cold():
    making = picker()
    replica = ask(making)
    before = Counters(queried=1000)
    making.engine_told(("p", replica), Counters(queried=1200), before)
    assert making.placer.prefixes.held("p", prompt(making), 0.0) != {}
    making.engine_told(("p", replica), Counters(queried=10), before)
    assert making.placer.prefixes.held("p", prompt(making), 0.0) == {}


def test_a_replica_holds_no_more_than_its_engine_says_that_fits():
    making = picker()
    replica = ask(making)
    asked = prompt(making)
    making.engine_told(("p", replica), Counters(cache_tokens=float(asked.tokens[0])), None)
    assert making.placer.prefixes.held("p", asked, 0.0) == {replica: asked.tokens[0]}
