"""Certificates for servers of gRPC's own library, which asks for the newest at each connection."""

from __future__ import annotations

import grpc

from homing.control.certificates import Certificates, Files


def configuration(files: Files) -> grpc.ServerCertificateConfiguration:
    """Raises OSError."""
    assert files.cert is not None
    assert files.key is not None
    chain = [(files.key.read_bytes(), files.cert.read_bytes())]
    return grpc.ssl_server_certificate_configuration(chain, files.ca.read_bytes() if files.ca is not None else None)


def credentials(
    certificates: Certificates[grpc.ServerCertificateConfiguration], *, asks_clients: bool
) -> grpc.ServerCredentials:
    """`asks_clients`: only who shows a certificate of the authorities may connect."""
    return grpc.dynamic_ssl_server_credentials(certificates.newest(), certificates.newest, asks_clients)
