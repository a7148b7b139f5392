import asyncio

import pytest

from homing.control.membership import Membership
from homing.control.registrations import Registration, Registrations
from homing.core.config import parse
from homing.core.fleet import HealthChanged

PLACE = ("p", "x")
X = Registration("p", "x", "10.0.0.9:80", 1, ttl_s=10.0)
FOR_EVER = Registration("p", "y", "10.0.0.8:80", 2, ttl_s=None)


class MemoryStore:
    def __init__(self):
        self.kept = {}
        self.writes = 0
        self.noted, self.elsewhere, self.away = [], set(), False

    async def put_registration(self, registration):
        self.writes += 1
        self.kept[registration.place] = registration

    async def remove_registration(self, place):
        del self.kept[place]

    async def note_heard(self, place, ttl_s):
        self.noted.append((place, ttl_s))
        if self.away:
            raise OSError("away")

    async def heard(self, places):
        if self.away:
            raise OSError("away")
        return self.elsewhere & set(places)


def file(allowed="true"):
    text = f"pools: {{p: {{replicas: [{{id: a, address: '10.0.0.1:80'}}], discovery: {{api: {allowed}}}}}}}"
    return parse(text, "homing.yaml")


class Setup:
    def __init__(self):
        self.now, self.store = 0.0, MemoryStore()
        self.membership = Membership(file(), ("api",))
        self.registrations = Registrations(self.membership, self.store, lambda: self.now, check_s=0.01)

    @property
    def ids(self):
        return [r.id for r in self.membership.view.fleet.pools[0].replicas]


@pytest.fixture
async def setup(background):
    made = Setup()
    background(made.registrations.run())
    return made


async def test_a_registered_replica_is_in_the_fleet_until_it_is_taken_back(setup):
    assert await setup.registrations.put(X)
    assert setup.ids == ["a", "x"]
    assert await setup.registrations.remove(PLACE)
    assert (setup.ids, setup.store.kept) == (["a"], {})
    assert not await setup.registrations.remove(PLACE)


async def test_where_the_file_allows_none_any_more_they_do_not_count_until_it_does_again(setup, until):
    await setup.registrations.put(FOR_EVER)
    setup.membership.configure(file("false"))
    await until(lambda: setup.ids == ["a"])
    assert setup.store.kept == {FOR_EVER.place: FOR_EVER}
    setup.membership.configure(file())
    await until(lambda: setup.ids == ["a", "y"])


async def test_a_heartbeat_is_no_write(setup):
    await setup.registrations.put(X)
    assert not await setup.registrations.put(X)
    assert setup.store.writes == 1


async def test_one_that_is_overdue_and_unwell_leaves(setup, until):
    await setup.registrations.put(X)
    await setup.registrations.put(FOR_EVER)
    setup.now = 10.1
    await until(lambda: setup.ids == ["a", "y"])


async def test_one_that_is_overdue_but_answers_its_probes_stays_until_they_fail(setup, until):
    await setup.registrations.put(X)
    setup.membership.apply(HealthChanged(*PLACE, True))
    setup.now = 100.0
    for _ in range(5):
        assert "x" in setup.ids
    setup.membership.apply(HealthChanged(*PLACE, False))
    await until(lambda: setup.ids == ["a"])


async def test_a_heartbeat_in_time_keeps_it(setup):
    await setup.registrations.put(X)
    setup.now = 9.0
    await setup.registrations.put(X)
    setup.now = 18.0
    assert setup.registrations._overdue() == []
    setup.now = 19.1
    assert setup.registrations._overdue() == [PLACE]


async def test_after_a_restart_each_has_its_whole_ttl(setup):
    setup.now = 1000.0
    setup.registrations.restore((X, FOR_EVER))
    assert setup.ids == ["a", "x", "y"]
    setup.now = 1009.0
    assert setup.registrations._overdue() == []


async def test_the_file_wins(setup):
    await setup.registrations.put(Registration("p", "a", "10.0.0.7:80", 1, None))
    assert setup.membership.view.fleet.pools[0].replica("a").address == "10.0.0.1:80"
    (difference,) = setup.membership.differences
    assert (difference.believed, difference.source) == ("file", "api")


async def test_an_engine_with_several_ranks_is_as_many_replicas_and_stays_while_one_of_them_answers(setup, until):
    await setup.registrations.put(Registration("p", "dp", "10.0.0.5:80", 2, 10.0, dp_size=2))
    found = setup.membership.view.fleet.pools[0].replicas[1:]
    assert [(r.id, r.address, r.weight, r.rank) for r in found] == [
        ("dp-0", "10.0.0.5:80", 2, 0),
        ("dp-1", "10.0.0.5:80", 2, 1),
    ]
    setup.membership.apply(HealthChanged("p", "dp-1", healthy=True))
    setup.now = 100.0
    await asyncio.sleep(0.05)
    assert setup.ids == ["a", "dp-0", "dp-1"]
    setup.membership.apply(HealthChanged("p", "dp-1", healthy=False))
    await until(lambda: setup.ids == ["a"])


async def test_one_that_is_heard_of_by_another_control_service_stays(setup, until):
    await setup.registrations.put(X)
    assert setup.store.noted == [(PLACE, 10.0)]
    setup.store.elsewhere = {PLACE}
    setup.now = 100.0
    await asyncio.sleep(0.05)
    assert setup.ids == ["a", "x"]
    setup.store.elsewhere = set()
    await until(lambda: setup.ids == ["a"])


async def test_nobody_leaves_while_it_is_not_known_what_others_heard(setup, until):
    setup.store.away = True
    await setup.registrations.put(X)
    setup.now = 100.0
    await asyncio.sleep(0.05)
    assert setup.ids == ["a", "x"]
    setup.store.away = False
    await until(lambda: setup.ids == ["a"])


async def test_what_another_control_service_wrote_is_taken_over_and_what_was_heard_here_counts_on(setup):
    await setup.registrations.put(X)
    setup.now = 9.0
    setup.registrations.restore((X, FOR_EVER))
    assert setup.ids == ["a", "x", "y"]
    setup.now = 10.1
    assert setup.registrations._overdue() == [PLACE]
    setup.registrations.restore((FOR_EVER,))
    assert setup.ids == ["a", "y"]
