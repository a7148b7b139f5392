import asyncio

import pytest

from homing.control.discovery.static import StaticDiscovery, resolve
from homing.control.membership import Membership
from homing.core.config import parse


class Names:
    """A resolver by a table; a missing name fails as the system's does."""

    def __init__(self, **table):
        self.table = table
        self.asked = 0

    async def __call__(self, host, port):
        self.asked += 1
        if host not in self.table:
            raise OSError("Name or service not known")
        return self.table[host]


@pytest.fixture
def discover(homing_yaml, background):
    async def start(names, *addresses):
        membership = Membership(parse(homing_yaml(*addresses), "homing.yaml"))
        discovery = StaticDiscovery(membership, names, interval_s=0.02)
        background(discovery.run())
        await asyncio.wait_for(discovery.first_round.wait(), 5)
        return membership, discovery

    return start


def addresses(membership):
    return [r.address for r in membership.view.fleet.pools[0].replicas]


async def test_names_are_resolved_and_addresses_are_left_alone(discover):
    names = Names(gpu=["10.0.0.7"], six=["fd00::1"])
    membership, _ = await discover(names, "gpu:80", "10.0.0.1:80", "six:81")
    assert addresses(membership) == ["10.0.0.7:80", "10.0.0.1:80", "[fd00::1]:81"]


async def test_a_change_of_address_is_told_and_the_id_stays(discover, until):
    names = Names(gpu=["10.0.0.7"])
    membership, _ = await discover(names, "gpu:80")
    names.table["gpu"] = ["10.0.0.8"]
    await until(lambda: addresses(membership) == ["10.0.0.8:80"])
    assert membership.view.fleet.pools[0].replicas[0].id == "r0"


async def test_of_several_addresses_the_one_in_use_is_kept(discover, until):
    names = Names(gpu=["10.0.0.7", "10.0.0.8"])
    membership, _ = await discover(names, "gpu:80")
    names.table["gpu"] = ["10.0.0.8", "10.0.0.7"]
    asked = names.asked
    await until(lambda: names.asked >= asked + 3)
    assert addresses(membership) == ["10.0.0.7:80"]


async def test_a_name_that_fails_keeps_its_address_and_is_logged_once(discover, until, caplog):
    names = Names(gpu=["10.0.0.7"])
    membership, discovery = await discover(names, "gpu:80")
    del names.table["gpu"]
    await until(lambda: discovery.failures["p"] >= 3)
    assert addresses(membership) == ["10.0.0.7:80"]
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "gpu does not resolve (Name or service not known); its last address stays"
    ]
    names.table["gpu"] = ["10.0.0.9"]
    await until(lambda: addresses(membership) == ["10.0.0.9:80"])


async def test_a_name_that_never_resolved_stays_a_name(discover):
    membership, _ = await discover(Names(), "gpu:80")
    assert addresses(membership) == ["gpu:80"]


async def test_a_new_file_is_resolved_at_once(homing_yaml, background, until):
    membership = Membership(parse(homing_yaml("10.0.0.1:80"), "homing.yaml"))
    discovery = StaticDiscovery(membership, Names(gpu=["10.0.0.7"]), interval_s=3600)
    background(discovery.run())
    await asyncio.wait_for(discovery.first_round.wait(), 5)
    membership.configure(parse(homing_yaml("gpu:80"), "homing.yaml"))
    await until(lambda: addresses(membership) == ["10.0.0.7:80"])


async def test_unusable_addresses_are_passed_over(discover):
    membership, _ = await discover(Names(gpu=["fe80::1%eth0", "0.0.0.0", "10.0.0.7"]), "gpu:80")
    assert addresses(membership) == ["10.0.0.7:80"]


async def test_the_systems_resolver_knows_localhost():
    assert set(await resolve("localhost", 80)) & {"127.0.0.1", "::1"}
