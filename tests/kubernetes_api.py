"""An HTTP server that lists and watches EndpointSlices as the API's documentation says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

PORTS = [{"name": "http", "port": 8000, "protocol": "TCP"}, {"name": "metrics", "port": 9090, "protocol": "TCP"}]


def endpoint(pod, host, ready=True, **conditions):
    said = {"ready": ready, **conditions}
    return {"addresses": [host], "conditions": said, "targetRef": {"kind": "Pod", "name": pod}}


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
    """Lists `slices` at `version`; watches get what is `push`ed after they came. `url` once it is served."""

    url = ""

    def __init__(self):
        self.slices = []
        self.version = 10
        self.lists = 0
        self.watched_from = []
        self.selectors = set()
        self.watches = []
        self.watched = asyncio.Event()
        self.refusal = None
        self.paths = []  # of all requests: (verb as RBAC has it, path)

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                url = urlsplit(head.split()[1].decode())
                query = {k: v for k, (v,) in parse_qs(url.query).items()}
                self.paths.append(("watch" if "watch" in query else "list", url.path))
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
                    self.watched.set()
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


@contextlib.asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        for watch in made.watches:
            watch.transport.abort()
        server.close()


def kubeconfig(url: str) -> str:
    """As kubectl reads it."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
