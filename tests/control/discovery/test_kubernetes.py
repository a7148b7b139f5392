"""The real client (lightkube), against an HTTP server that lists and watches as the API's documentation says."""

import asyncio

import pytest
from kubernetes_api import api_server, endpoint, kubeconfig, slice_of

from homing.control.discovery.kubernetes import KubernetesSource
from homing.control.discovery.source import Found, SourceError
from homing.core.config import Kubernetes


@pytest.fixture
async def api():
    async with api_server() as made:
        yield made
    assert {path for _, path in made.paths} <= {"/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices"}


@pytest.fixture
def source(api, tmp_path):
    def made(port="http", url="", **more):
        file = tmp_path / "kubeconfig"
        file.write_text(kubeconfig(url or api.url))
        named = {"port": port} if port else {}
        return KubernetesSource(Kubernetes(service="vllm", namespace="ai", kubeconfig=str(file), **named), **more)

    return made


async def test_ready_endpoints_of_all_slices_by_the_pods_names(api, source, follow):
    api.slices = [
        slice_of("s1", 5, endpoint("vllm-1", "10.1.0.2"), endpoint("vllm-0", "10.1.0.1")),
        slice_of("s2", 6, endpoint("vllm-2", "10.1.0.3"), endpoint("vllm-3", "10.1.0.4", ready=False)),
    ]
    assert await follow(source()).next() == (
        Found("vllm-0", "10.1.0.1:8000"),
        Found("vllm-1", "10.1.0.2:8000"),
        Found("vllm-2", "10.1.0.3:8000"),
    )
    assert api.selectors == {"kubernetes.io/service-name=vllm"}


async def test_a_pod_that_terminates_stays_while_it_serves(api, source, follow):
    api.slices = [
        slice_of(
            "s1",
            5,
            endpoint("vllm-0", "10.1.0.1", serving=True, terminating=False),
            endpoint("vllm-1", "10.1.0.2", ready=False, serving=True, terminating=True),
            endpoint("vllm-2", "10.1.0.3", ready=False, serving=False, terminating=True),
        )
    ]
    assert await follow(source()).next() == (Found("vllm-0", "10.1.0.1:8000"), Found("vllm-1", "10.1.0.2:8000"))


@pytest.mark.parametrize(("port", "found"), [("metrics", 9090), ("9090", 9090), ("", 8000)])
async def test_a_port_by_name_by_number_or_the_first(api, source, follow, port, found):
    api.slices = [slice_of("s1", 5, endpoint("vllm-0", "10.1.0.1"))]
    assert await follow(source(port)).next() == (Found("vllm-0", f"10.1.0.1:{found}"),)


async def test_changes_are_watched_from_the_version_of_the_list(api, source, follow, until):
    api.slices = [slice_of("s1", 5, endpoint("vllm-0", "10.1.0.1"))]
    said = follow(source())
    await said.next()
    waiting = asyncio.create_task(said.next())
    await until(lambda: api.watches)
    api.push("BOOKMARK", slice_of("", 11, ports=[]))
    api.push("ADDED", slice_of("s2", 12, endpoint("vllm-1", "10.1.0.2")))
    assert await waiting == (Found("vllm-0", "10.1.0.1:8000"), Found("vllm-1", "10.1.0.2:8000"))
    api.push("DELETED", slice_of("s1", 13, endpoint("vllm-0", "10.1.0.1")))
    assert await said.next() == (Found("vllm-1", "10.1.0.2:8000"),)
    assert (api.lists, api.watched_from) == (1, ["10"])


async def test_a_watch_that_ends_goes_on_where_it_was(api, source, follow, until):
    said = follow(source())
    await said.next()
    waiting = asyncio.create_task(said.next())
    await until(lambda: len(api.watches) == 1)
    api.push("ADDED", slice_of("s1", 12, endpoint("vllm-0", "10.1.0.1")))
    assert len(await waiting) == 1
    waiting = asyncio.create_task(said.next())
    api.end_watch()
    await until(lambda: len(api.watches) == 2)
    api.push("ADDED", slice_of("s2", 13, endpoint("vllm-1", "10.1.0.2")))
    assert len(await waiting) == 2
    assert (api.lists, api.watched_from) == (1, ["10", "12"])


async def test_a_version_that_is_gone_is_listed_anew(api, source, follow, until):
    said = follow(source())
    await said.next()
    waiting = asyncio.create_task(said.next())
    await until(lambda: api.watches)
    api.slices, api.version = [slice_of("s1", 40, endpoint("vllm-0", "10.1.0.1"))], 50
    api.gone()
    assert await waiting == (Found("vllm-0", "10.1.0.1:8000"),)
    assert api.lists == 2


async def test_a_watch_that_never_hears_of_its_server_again_is_not_waited_for(api, source, follow):
    api.slices = [slice_of("s1", 5, endpoint("vllm-0", "10.1.0.1"))]
    said = follow(source(list_every_s=0.2))
    assert await said.next() == (Found("vllm-0", "10.1.0.1:8000"),)
    api.slices = [slice_of("s1", 6, endpoint("vllm-1", "10.1.0.2"))]  # and the watch is told nothing
    while (found := await asyncio.wait_for(said.next(), 5)) == (Found("vllm-0", "10.1.0.1:8000"),):
        pass
    assert found == (Found("vllm-1", "10.1.0.2:8000"),)


async def test_what_is_forbidden_is_a_failure(api, source, follow):
    api.refusal = 403
    with pytest.raises(SourceError, match="ai/vllm: Forbidden"):
        await follow(source()).next()


async def test_an_api_that_is_away_is_a_failure(source, follow):
    with pytest.raises(SourceError, match="ai/vllm"):
        await follow(source(url="http://127.0.0.1:1")).next()


async def test_without_an_account_is_a_failure(follow, tmp_path):
    settings = Kubernetes(service="vllm", kubeconfig=str(tmp_path / "none"))
    with pytest.raises(SourceError, match="no access to Kubernetes"):
        await follow(KubernetesSource(settings)).next()
