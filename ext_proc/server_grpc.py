"""The filter over grpc.aio: bytes in, bytes out, one exchange a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from homing.control.http_server import refuse_served
from homing.ext_proc import codec
from homing.ext_proc.backlog import Backlog
from homing.ext_proc.events import Later
from homing.ext_proc.transport import (
    EXT_PROC,
    LIVENESS,
    MAX_MESSAGE_BYTES,
    MAX_METADATA_BYTES,
    OUTCOMES,
    READINESS,
    Finished,
    OpenExchange,
)


class GrpcTransport:
    """`address` is `unix:/path` or `host:port`, there over TLS unless `credentials` is None."""

    def __init__(
        self,
        address: str,
        open_exchange: OpenExchange,
        finished: Finished,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._address = address
        self._socket = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
        self._open_exchange = open_exchange
        self._decoder = codec.Decoder()
        self._backlog = Backlog(finished)
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES // 2),
                ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
                # a burst waits its turn: gRPC would refuse some of it at random beyond 1,000
                ("grpc.server.max_pending_requests", 1_000_000),
                ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
                ("grpc.so_reuseport", 0),  # a second picker on the same address is a mistake
            )
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    EXT_PROC, {"Process": grpc.stream_stream_rpc_method_handler(self._process)}
                ),
                grpc.method_handlers_generic_handler(
                    OUTCOMES, {"Export": grpc.unary_unary_rpc_method_handler(self._outcomes)}
                ),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self) -> None:
        if self._socket is not None:  # gRPC would take a socket that another picker serves
            refuse_served(self._socket)
        try:
            if self._credentials is None:
                self._server.add_insecure_port(self._address)
            else:
                self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._address}") from error
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.set_serving(False)  # the health service would say that "" serves
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in READINESS:
            await self._health.set(name, status)

    @property
    def connected(self) -> bool:
        return True

    async def stop(self, grace_s: float) -> None:
        await self.set_serving(False)
        await self._server.stop(grace_s)
        self._backlog.tell_all()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def _process(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        exchange = self._open_exchange()
        try:
            async for data in messages:
                answer = exchange.receive(self._decoder.decode(data))
                if isinstance(answer, Later):
                    await answer.wait
                    answer = answer.resume()
                await context.write(codec.encode(answer))
                if exchange.over:
                    break
        except codec.MalformedMessageError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:  # also when Envoy resets the stream: the handler is cancelled then
            exchange.close()

    async def _outcomes(self, message: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self._backlog.take(message)
        return b""  # ExportLogsServiceResponse: all of it was taken
