"""`homing policy` and `homing bypass`, with the API's own routes behind them."""

import json

import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.testclient import TestClient

from homing.cli.api_client import Api
from homing.cli.main import main
from homing.control.api_policy import routes
from homing.control.audit import Audit
from homing.control.membership import Membership
from homing.control.policies import Policies
from homing.core.config import parse

FILE = "pools: {p: {mode: route, replicas: [{id: a, address: '10.0.0.1:80'}, {id: b, address: '10.0.0.2:80'}]}}"


class Store:
    away = False

    async def put_policy(self, policy):
        if self.away:
            raise OSError("away")
        return True

    async def put_audit(self, entry):
        pass


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def policies(store):
    return Policies(Membership(parse(FILE, "homing.yaml")), store, lambda: 1764450000.0)


@pytest.fixture
def homing(policies, monkeypatch):
    application = FastAPI()
    application.include_router(routes(policies._membership, policies, Audit(Store(), lambda: 0.0)))
    client = TestClient(application, base_url="http://127.0.0.1:8600")
    monkeypatch.setattr(Api, "at", classmethod(lambda cls, *_: cls(client)))
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_without_a_policy_all_is_as_the_file_says(homing):
    assert homing("policy", "show").output == "policy 0\n  nothing: all is as the file says\n"


def test_what_is_not_named_stays(homing, policies):
    homing("policy", "set", "p", "--mode", "observe", "--share", "b=0.05")
    result = homing("policy", "set", "p", "--share", "a=0.5", "--share", "c=0")
    assert result.output.splitlines()[1:4] == [
        "  pool p: mode observe at most, a 50% of the new sessions at most, b 5% of the new sessions at most,"
        " c 0% of the new sessions at most",
        "  pool p: a share for c does not hold: it is not there",
        "policy 1 of 2025-11-29 21:00:00Z by testclient",
    ]
    homing("policy", "set", "p", "--mode", "file", "--share", "a=1", "--share", "b=1", "--share", "c=1")
    assert (policies.now.version, policies.now.pools) == (3, {})


def test_the_file_wins_and_that_is_said(homing):
    result = homing("policy", "set", "p", "--mode", "full")
    assert "  pool p: mode full does not hold: mode route, as the file says" in result.output


def test_bypass_and_back(homing, policies):
    homing("policy", "set", "p", "--mode", "observe")
    assert "bypass is on" in homing("bypass", "on").output
    assert policies.now.bypass
    assert homing("bypass", "on").output == "bypass is on already\n"
    homing("bypass", "off")
    assert (policies.now.version, policies.now.bypass, policies.now.of("p").mode) == (3, False, "observe")


def test_bypass_that_cannot_be_kept_holds_and_is_said_to_hold_there_alone(homing, policies, store):
    store.away = True
    result = homing("bypass", "on")
    assert (result.exit_code, policies.now.bypass) == (0, True)
    assert "HELD HERE ALONE" in result.output
    assert "homing bypass on --api URL" in result.output
    assert "homing bypass off --api URL" in homing("bypass", "off").output


def test_rollback_and_its_refusals(homing, policies):
    homing("bypass", "on")
    answer = json.loads(homing("policy", "rollback", "--json").output)
    assert (answer["now"]["version"], answer["now"]["bypass"]) == (2, False)
    assert json.loads(homing("policy", "rollback", "1", "--json").output)["now"]["bypass"]
    result = homing("policy", "rollback", "17")
    assert (result.exit_code, result.output) == (1, "Error: policy 17 is not kept\n")


@pytest.mark.parametrize("share", ["b", "b=", "=0.5", "b=2", "b=-0.1", "b=nan", "b=x"])
def test_a_share_that_is_none_is_wrong_usage(homing, share):
    assert homing("policy", "set", "p", "--share", share).exit_code == 2


def test_nothing_to_set_is_wrong_usage_and_an_unknown_pool_is_refused(homing):
    assert homing("policy", "set", "p").exit_code == 2
    result = homing("policy", "set", "x", "--mode", "off")
    assert (result.exit_code, result.output) == (1, "Error: there is no pool 'x'\n")
