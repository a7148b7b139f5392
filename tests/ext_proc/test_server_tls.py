"""A picker's listener by TCP over TLS, with either transport and gRPC's own client."""

from __future__ import annotations

import grpc
import pytest
from authority import Authority
from e2e.stack import free_ports
from grpc_health.v1 import health_pb2, health_pb2_grpc

from homing.control.tls import ProcessTls
from homing.core.config.secret import SecretRef
from homing.core.config.tls import ServerTls, Tls
from homing.ext_proc.server_grpc import GrpcTransport
from homing.ext_proc.server_h2 import H2Transport
from homing.ext_proc.transport import Transport


def no_exchange():
    raise AssertionError("nobody asks where a request goes")


def transport(kind: str, address: str, tls: ProcessTls) -> Transport:
    if kind == "h2":
        return H2Transport(address, no_exchange, lambda _: None, tls.server("picker", ("h2",)))
    return GrpcTransport(address, no_exchange, lambda _: None, tls.grpc_server("picker"))


async def asked(address: str, credentials: grpc.ChannelCredentials) -> str:
    async with grpc.aio.secure_channel(address, credentials) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.aio.AioRpcError as error:
            return str(error.code())
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@pytest.mark.parametrize("kind", ["h2", "grpc"])
async def test_only_who_shows_a_certificate_is_served(kind, tmp_path):
    authority = Authority(tmp_path)
    authority.issue("picker")
    authority.issue("client")
    said = Tls(
        picker=ServerTls(
            cert=SecretRef("file", "picker.pem"),
            key=SecretRef("file", "picker-key.pem"),
            client_ca=SecretRef("file", "ca.pem"),
        )
    )
    address = f"127.0.0.1:{free_ports(1)[0]}"
    serving = transport(kind, address, ProcessTls(said, tmp_path / "homing.yaml"))
    await serving.start()
    await serving.set_serving(True)
    pem = {name: (tmp_path / name).read_bytes() for name in ("ca.pem", "client.pem", "client-key.pem")}
    try:
        known = grpc.ssl_channel_credentials(pem["ca.pem"], pem["client-key.pem"], pem["client.pem"])
        assert await asked(address, known) == "SERVING"
        assert await asked(address, grpc.ssl_channel_credentials(pem["ca.pem"])) == "StatusCode.UNAVAILABLE"
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    finally:
        await serving.stop(0.1)
