"""`model: auto` in a picker: which pool, what Envoy is told, and what becomes of the body."""

from __future__ import annotations

import json

import pytest

from homing.core.chains import Chains
from homing.core.config import ConfigError, parse
from homing.core.fleet import Fleet, LengthTold, Pool, Replica
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.session import Homes
from homing.ext_proc.events import BodyAnswer, Reject, RequestHeadersReceived
from homing.ext_proc.picker import Picker
from homing.ext_proc.routed import RoutedRequest

FILE: dict[str, object] = {
    "pools": {
        "large": {
            "served_name": "Large",
            "replicas": [{"id": "a", "address": "10.0.0.1:8000"}],
            "context": {"max_tokens": 50},
        },
        "small": {"served_name": "Small", "replicas": [{"id": "b", "address": "10.0.0.2:8000"}]},
        "other": {"served_name": "Other", "replicas": [{"id": "c", "address": "10.0.0.3:8000"}]},
    },
    "auto": {"pools": ["large", "small"], "default": "small"},
}
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


class Nowhere:
    def observe(self, place: object, seconds: float) -> None: ...

    def forget(self, place: object) -> None: ...


class Picking:
    def __init__(self, large_is_fit: bool = True) -> None:
        self.picker = Picker(
            Placer(Homes(100.0, 99), Chains(100.0, 99), Load(), b"secret", lambda n: 0), lambda: 0.0, Nowhere()
        )
        config = parse(json.dumps(FILE), "f")
        self.picker.configure(config)
        self.picker.adopt(
            Fleet(
                tuple(
                    Pool(
                        p.id,
                        p.served_name,
                        p.aliases,
                        replicas=(Replica(p.id, f"{p.id}:1", healthy=p.id != "large" or large_is_fit),),
                    )
                    for p in config.pools
                )
            )
        )

    def ask(self, model: str, session: bytes | None = b"s", **more: bytes) -> RoutedRequest:
        """As Envoy does: it has written the default's name into the body of a request for auto."""
        headers = {
            ":path": b"/v1/chat/completions",
            "x-session-id": session or b"u",
            "x-homing-key": b"/" + (session or b"u"),
        }
        headers |= {"x-homing-given": b"1"} if session else {}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if model == "auto":
            headers["x-homing-auto"] = b"1"
        return self.picker.route(RequestHeadersReceived(headers, "Small" if model == "auto" else model))

    def goes_to(self, model: str, **more: bytes) -> str | None:
        """The replica, and whether Envoy is told the pool."""
        routed = self.ask(model, **more)
        headers = dict(routed.set_headers)
        place = headers["x-gateway-destination-endpoint"].decode().split(":")[0]
        assert headers.get("x-homing-pool", b"").decode() == (place if routed.reroute else "")
        return place


def test_a_session_without_a_model_goes_to_the_default_and_costs_nothing():
    picking = Picking()
    routed = picking.ask("auto")
    assert (routed.reroute, routed.want_body) == (False, True)  # it has a budget: the strictest of both
    assert picking.goes_to("auto") == "small"


def test_a_session_goes_on_with_the_model_that_it_began_with():
    picking = Picking()
    assert [picking.goes_to(m) for m in ("Large", "auto", "Small", "auto", "Small", "Small", "auto")] == [
        "large", "large", "small", "large", "small", "small", "small",
    ]  # fmt: skip


def test_models_that_are_not_among_them_are_not_remembered():
    picking = Picking()
    assert [picking.goes_to(m) for m in ("Other", "auto")] == ["other", "small"]


def test_the_body_names_the_model_that_it_goes_to():
    picking = Picking()
    picking.ask("Large")
    for said in (b'"Small"', b'"auto"'):
        answer = picking.ask("auto", x_homing_model=b"auto").rewrite(b'{"model":%s,"n":1}' % said)
        assert answer == BodyAnswer(b'{"model":"Large","n":1}')


def test_a_session_that_began_without_an_id_is_known_by_the_one_it_got():
    picking = Picking()
    routed = picking.ask("Large", session=None)
    answer = routed.rewrite(json.dumps(CHAT).encode())
    assert isinstance(answer, BodyAnswer)
    minted = dict(answer.set_headers)["x-session-id"]
    assert dict(picking.ask("auto", session=minted).set_headers)["x-homing-pool"] == b"large"


def test_a_pool_that_is_down_is_passed_over():
    picking = Picking(large_is_fit=False)
    picking.ask("Large")
    assert picking.goes_to("auto") == "small"


def test_a_closed_session_is_forgotten():
    picking = Picking()
    picking.ask("Large", x_session_close=b"true").release()
    assert picking.goes_to("auto") == "small"


def test_auto_has_to_fit_every_model_that_the_session_may_come_to():
    picking = Picking()
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 500}]}).encode()
    assert isinstance(picking.ask("auto").rewrite(body), Reject)
    assert not picking.ask("Small").want_body


def test_also_one_whose_length_only_its_engines_know():
    picking = Picking()
    small = {**FILE["pools"]["small"], "context": {"max_tokens": "auto"}}  # type: ignore[index]
    picking.picker.configure(parse(json.dumps(FILE | {"pools": FILE["pools"] | {"small": small}}), "f"))  # type: ignore[operator]
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 300}]}).encode()
    assert isinstance(picking.ask("auto").rewrite(body), BodyAnswer)
    known = Fleet(tuple(compiled.pool for compiled in picking.picker.fleet.by_id.values()))
    picking.picker.adopt(known.apply(LengthTold("small", 30)))
    assert isinstance(picking.ask("auto").rewrite(body), Reject)


@pytest.mark.parametrize(
    ("auto", "problem"),
    [
        ({"pools": ["large", "nope"], "default": "large"}, 'auto.pools[1]: found "nope", allowed: a pool of this file'),
        ({"pools": ["large"], "default": "small"}, 'auto.default: found "small", allowed: one of auto.pools'),
        (
            {"model": "Large", "pools": ["large"], "default": "large"},
            'auto.model: found "Large" again (pools.large.served_name, line 1),'
            " allowed: a model name that leads to one pool, and once",
        ),
    ],
)
def test_what_the_file_may_not_say(auto: dict[str, object], problem: str):
    with pytest.raises(ConfigError) as refused:
        parse(json.dumps(FILE | {"auto": auto}), "f")
    assert str(refused.value) == f"f:1: {problem}"
