import pytest

from homing.control.membership import Membership
from homing.control.proving import Proving
from homing.core.config import parse

A = ("p", "a")
FILE = "pools: {p: {served_name: m, engine: {proof: %s}, replicas: [{id: a, address: '10.0.0.1:80'}]}}"


class FakeEngine:
    def __init__(self):
        self.why = ""
        self.began = 1000
        self.looks = 0
        self.proofs = []

    async def epoch(self, asked):
        self.looks += 1
        return self.began

    async def unfit(self, asked):
        self.proofs.append(asked)
        return self.why


class MemoryStore:
    def __init__(self):
        self.proved = {}

    async def put_proved(self, place, epoch):
        self.proved[place] = epoch


class Setup:
    def __init__(self, proof="auto"):
        self.now, self.engine, self.store = 0.0, FakeEngine(), MemoryStore()
        self.membership = Membership(parse(FILE % proof, "homing.yaml"))
        self.proving = Proving(self.membership, self.engine, self.store, lambda: self.now, look_s=5.0)

    async def fit(self):
        return await self.proving.fit(A, "10.0.0.1:80")

    @property
    def epoch(self):
        return self.membership.view.fleet.pools[0].replicas[0].epoch


@pytest.fixture
def setup():
    return Setup()


async def test_a_replica_is_proved_once(setup):
    assert [await setup.fit() for _ in range(3)] == [True, True, True]
    (asked,) = setup.engine.proofs
    assert (asked.address, asked.model, asked.kind) == ("10.0.0.1:80", "m", "auto")
    assert (setup.epoch, setup.store.proved) == (1000, {A: 1000})


async def test_one_that_cannot_serve_is_asked_again_and_said_once(setup, caplog):
    setup.engine.why = "a chat request is answered with 500"
    assert [await setup.fit() for _ in range(3)] == [False, False, False]
    assert caplog.messages == [
        "replica a of pool p answers its probes, but cannot serve: a chat request is answered with 500"
    ]
    assert setup.proving.why_unfit(A) == "a chat request is answered with 500"
    setup.proving.failed(A)  # now that is what is wrong with it
    assert setup.proving.why_unfit(A) == ""
    assert not await setup.fit()
    setup.engine.why = ""
    assert await setup.fit()
    assert setup.proving.why_unfit(A) == ""


async def test_another_process_is_noticed_and_proved_anew(setup):
    await setup.fit()
    setup.engine.began = 2000
    setup.now = 4.9
    await setup.fit()
    assert setup.epoch == 1000
    setup.now = 5.0
    await setup.fit()
    assert (setup.epoch, len(setup.engine.proofs), setup.store.proved) == (2000, 2, {A: 2000})


async def test_after_a_failed_probe_it_is_looked_at_once(setup):
    await setup.fit()
    setup.engine.began = 2000
    setup.proving.failed(A)
    await setup.fit()
    assert setup.epoch == 2000


async def test_the_same_process_is_not_proved_again_after_a_restart_of_control(setup):
    setup.proving.restore({A: 1000})
    assert await setup.fit()
    assert setup.engine.proofs == []
    later = Setup()
    later.proving.restore({A: 999})
    await later.fit()
    assert len(later.engine.proofs) == 1


async def test_an_engine_that_does_not_say_when_it_began_is_proved_once(setup):
    setup.engine.began = 0
    assert [await setup.fit() for _ in range(2)] == [True, True]
    assert (len(setup.engine.proofs), setup.epoch, setup.store.proved) == (1, 0, {})


async def test_who_opts_out_is_not_asked():
    setup = Setup("off")
    assert await setup.fit()
    assert (setup.engine.proofs, setup.epoch) == ([], 1000)


async def test_a_replica_that_is_not_probed_any_more_is_forgotten(setup):
    await setup.fit()
    setup.proving.forget(A)
    await setup.fit()
    assert len(setup.engine.proofs) == 2
