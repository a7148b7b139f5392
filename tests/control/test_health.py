"""The prober against real sockets."""

import asyncio
from random import Random

import pytest

from homing.control.health import HttpProbe, Prober
from homing.control.membership import Membership
from homing.core.config import HealthCheck, parse
from homing.core.fleet import State

CHECK = HealthCheck(timeout_s=0.3)


@pytest.fixture
async def probe():
    async with HttpProbe() as probe:
        yield probe


async def test_200_is_healthy_and_the_connection_is_kept(probe, replicas):
    assert [await probe(replicas[0].address, CHECK) for _ in range(3)] == ["", "", ""]
    assert (replicas[0].asked, replicas[0].connections) == (3, 1)


@pytest.mark.parametrize(
    ("mood", "trouble"),
    [("sick", "/health is answered with 500"), ("hung", "/health is not answered within 0.3 s")],
)
async def test_anything_else_is_not_and_what_it_is_is_said(probe, replicas, mood, trouble):
    replicas[0].mood = mood
    assert await probe(replicas[0].address, CHECK) == trouble


async def test_a_refused_connection_counts_like_any_failure(probe, replicas):
    address = replicas[0].address
    await replicas[0].stop()
    assert await probe(address, CHECK) == "it cannot be connected to"
    await replicas[0].start()
    assert await probe(address, CHECK) == ""


async def test_a_body_without_end_is_not_read_to_it(probe, replicas):
    replicas[0].mood = "endless"
    assert await probe(replicas[0].address, HealthCheck(timeout_s=5)) == ""


async def test_a_proxy_of_the_environment_is_not_asked(replicas, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with HttpProbe() as probe:
        assert await probe(replicas[0].address, CHECK) == ""


@pytest.fixture
def probing(homing_yaml, probe, background):
    def start(*addresses, probe=probe):
        membership = Membership(parse(homing_yaml(*addresses), "homing.yaml"))
        prober = Prober(membership, probe, Random(7))
        background(prober.run())
        return membership, prober

    return start


def healthy(membership):
    return [r.healthy for r in membership.view.fleet.pools[0].replicas]


async def test_first_success_makes_a_replica_ready(probing, replicas, until):
    membership, prober = probing(*(r.address for r in replicas))
    await asyncio.wait_for(prober.settled.wait(), 5)
    assert [r.state for r in membership.view.fleet.pools[0].replicas] == [State.READY] * 3
    assert prober.probes["p", True] >= 3


async def test_a_hung_replica_delays_nobody(probing, replicas, until):
    replicas[1].mood = "hung"
    membership, prober = probing(*(r.address for r in replicas))
    await until(lambda: healthy(membership) == [True, False, True])
    assert not prober.settled.is_set()
    await asyncio.wait_for(prober.settled.wait(), 5)
    replicas[0].mood = "sick"
    await until(lambda: healthy(membership) == [False, False, True])


async def test_a_dead_replica_keeps_its_membership_and_comes_back(probing, replicas, until):
    membership, prober = probing(replicas[0].address)
    await until(lambda: healthy(membership) == [True])
    await replicas[0].stop()
    await until(lambda: healthy(membership) == [False])
    assert membership.view.fleet.pools[0].replicas[0].state is State.READY
    assert prober.why_unhealthy(("p", "r0")) == "it cannot be connected to"
    await replicas[0].start()
    await until(lambda: healthy(membership) == [True])
    assert prober.why_unhealthy(("p", "r0")) == ""


async def test_one_failure_below_the_threshold_changes_nothing(probing, until):
    answers = iter(["", "ill", "", "ill", ""])
    done = asyncio.Event()

    async def flaky(address, check):
        answer = next(answers, None)
        if answer is None:
            done.set()
            return ""
        return answer

    membership, _ = probing("10.0.0.1:80", probe=flaky)
    await asyncio.wait_for(done.wait(), 5)
    assert membership.views.serial == 1


async def test_who_leaves_is_not_probed_any_more_and_who_joins_is(probing, replicas, homing_yaml, until):
    membership, _ = probing(replicas[0].address)
    await until(lambda: healthy(membership) == [True])
    membership.configure(parse(homing_yaml(replicas[1].address), "homing.yaml"))
    await until(lambda: replicas[1].asked >= 1)
    asked = replicas[0].asked
    await until(lambda: replicas[1].asked >= 4)
    assert replicas[0].asked == asked


async def test_an_unresolved_name_fails_without_being_asked(probing):
    asked = []

    async def probe(address, check):
        asked.append(address)
        return ""

    membership, prober = probing("vllm.internal:80", probe=probe)
    await asyncio.wait_for(prober.settled.wait(), 5)
    assert (healthy(membership), asked) == ([False], [])
    assert prober.why_unhealthy(("p", "r0")) == "its name does not resolve"
