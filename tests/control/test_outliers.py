"""The judge, with pickers of a few lines."""

import msgspec
import pytest

from homing.control.leadership.standing import Role
from homing.control.membership import Membership
from homing.control.outliers import Outliers
from homing.core.config import parse
from homing.core.fleet import HealthChanged
from homing.core.outliers import FIRST_S, Tallies, Tally

FILE = (
    "pools: {p: {replicas: [{id: a, address: '10.0.0.1:80'}, {id: b, address: '10.0.0.2:80'}]}}\nhealth: {passive: %s}"
)
BAD = msgspec.json.encode(Tallies((Tally("p", "a", 5, 4, 2), Tally("p", "b", 5, 0, 0))))


class Setup:
    def __init__(self, addresses, passive="true"):
        self.now = 0.0
        self.membership = Membership(parse(FILE % passive, "homing.yaml"))
        self.membership.apply(HealthChanged("p", "a", True), HealthChanged("p", "b", True))
        self.outliers = Outliers(addresses, self.membership, lambda: self.now, interval_s=0.01)

    @property
    def failing(self):
        return [r.id for r in self.membership.view.fleet.pools[0].replicas if r.failing]


@pytest.fixture
async def start(http_replies, background):
    made = []

    async def setup(*bodies, **how):
        made.append(Setup({f"picker-{i}": await http_replies(body) for i, body in enumerate(bodies)}, **how))
        background(made[-1].outliers.run())
        return made[-1]

    yield setup
    for each in made:
        async with each.outliers:
            pass


async def test_what_pickers_saw_together_is_judged_and_ends(start, until):
    setup = await start(BAD, BAD, b"nonsense")
    await until(lambda: setup.failing == ["a"])
    assert not setup.membership.view.fleet.pools[0].replicas[0].takes_new_sessions
    assert setup.outliers.ejections == 1
    setup.outliers._clients.clear()
    setup.now = FIRST_S
    setup.outliers._judge({})
    assert setup.failing == []


async def test_it_can_be_turned_off_and_ends_then(start, until):
    setup = await start(BAD, BAD)
    await until(lambda: setup.failing == ["a"])
    setup.membership.configure(parse(FILE % "false", "homing.yaml"))
    await until(lambda: setup.failing == [])


async def test_who_follows_judges_nobody(start):
    setup = await start(BAD, BAD)
    setup.membership.role = lambda: Role.FOLLOWING
    for _ in range(3):
        await setup.outliers._seen()
    assert setup.failing == []
