"""What the file says of certificates and tokens: who listens with which, and what homing's own processes show each
other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainValidator

from homing.core.config.keys import Keys
from homing.core.config.kinds import InFile, Secret, Switch, Text
from homing.core.config.secret import SecretRef

HOST_NAME = Text(r"[A-Za-z0-9_.:-]{1,253}", "a DNS name or an IP address, as the certificate has it")

ListenerName = Literal["listen", "api", "xds", "picker", "picker_http"]

CertificateFile = Annotated[SecretRef, PlainValidator(InFile())]
OptionalFile = Annotated[SecretRef | None, PlainValidator(InFile())]
Token = Annotated[SecretRef | None, PlainValidator(Secret())]


class ServerTls(Keys):
    """A listener's certificate. With `client_ca` only who has a certificate of those authorities may connect."""

    cert: CertificateFile
    key: CertificateFile
    client_ca: OptionalFile = None


class ClientTls(Keys):
    """What homing's processes and Envoy show when they connect to each other, and whom they trust."""

    ca: OptionalFile = None  # the system's authorities
    cert: OptionalFile = None
    key: OptionalFile = None
    server_name: Annotated[str, PlainValidator(HOST_NAME)] = ""


class Tls(Keys):
    """By listener: `listen`, `api` and `xds` as at the top of the file, `picker` is ext_proc by TCP, `picker_http` its
    HTTP port. One that is absent listens in plain text."""

    listen: ServerTls | None = None
    api: ServerTls | None = None
    xds: ServerTls | None = None
    picker: ServerTls | None = None
    picker_http: ServerTls | None = None
    client: ClientTls = ClientTls()
    trusted_network: Annotated[bool, PlainValidator(Switch())] = False


class Tokens(Keys):
    """Who may do what at the control service. `admin` everything; `fleet` read, and be told the fleet (pickers, and
    Envoys by xDS)."""

    admin: Token = None
    fleet: Token = None
