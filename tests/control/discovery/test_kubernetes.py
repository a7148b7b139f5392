"""The real client (lightkube), against an HTTP server that lists and watches as the API's documentation says."""

import asyncio
import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from homing.control.discovery.kubernetes import KubernetesSource
from homing.control.discovery.source import Found, SourceError
from homing.core.config import Kubernetes

PORTS = [{"name": "http", "port": 8000, "protocol": "TCP"}, {"name": "metrics", "port": 9090, "protocol": "TCP"}]


def endpoint(pod, host, ready=True):
    return {"addresses": [host], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}}


def slice_of(name, version, *endpoints, ports=PORTS):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "ai", "resourceVersion": str(version)},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": ports,
    }


class ApiServer:
    """Lists `slices` at `version`; watches get what is `push`ed after they came."""

    def __init__(self):
        self.slices = []
        self.version = 10
        self.lists = 0
        self.watched_from = []
        self.selectors = set()
        self.watches = []
        self.refusal = None

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                url = urlsplit(head.split()[1].decode())
                assert url.path == "/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices"
                query = {k: v for k, (v,) in parse_qs(url.query).items()}
                assert b"\r\nauthorization: bearer secret\r\n" in head.lower()
                self.selectors.add(query["labelSelector"])
                if self.refusal is not None:
                    self._answer(writer, self._status(self.refusal), self.refusal)
                elif "watch" in query:
                    self.watched_from.append(query["resourceVersion"])
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
                    )
                    self.watches.append(writer)
                else:
                    self.lists += 1
                    body = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": self.slices}
                    self._answer(writer, body | {"metadata": {"resourceVersion": str(self.version)}}, 200)
                await writer.drain()

    def push(self, kind, body):
        line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
        self.watches[-1].write(b"%x\r\n%s\r\n" % (len(line), line))

    def gone(self):
        self.push("ERROR", self._status(410))

    def end_watch(self):
        self.watches[-1].write(b"0\r\n\r\n")

    def _answer(self, writer, body, status):
        data = json.dumps(body).encode()
        head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        writer.write(head + data)

    def _status(self, code):
        reason = {410: "Expired", 403: "Forbidden"}[code]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": reason,
        }


@pytest.fixture
async def api():
    made = ApiServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    for watch in made.watches:
        watch.transport.abort()
    server.close()


@pytest.fixture
def source(api, tmp_path):
    def made(port="http", url=""):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url or api.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        named = {"port": port} if port else {}
        path = str(tmp_path / "kubeconfig")
        return KubernetesSource(Kubernetes(service="vllm", namespace="ai", kubeconfig=path, **named))

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
