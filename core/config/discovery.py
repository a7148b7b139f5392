"""Where a pool's replicas come from besides the list in the file: `pools.<id>.discovery`."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainValidator

from homing.core.config.keys import Keys
from homing.core.config.kinds import Integer, Number, Switch, Text

DNS_NAME = Text(
    r"(_[A-Za-z0-9-]{1,63}\.){2}[A-Za-z0-9._-]{1,253}|[A-Za-z0-9_][A-Za-z0-9._-]{0,252}:[0-9]{1,5}",
    "name:port for A and AAAA records, or the name of SRV records (_service._proto.name)",
)
PATH = Text(r"[^\x00]{1,4096}", "a path, absolute or beside the file")
LABEL = Text(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}(=[A-Za-z0-9._:/-]{0,254})?", "a label, or label=value")
ENGINE = Text(
    r"unix:///[!-~]{1,100}|tcp://[!-~]{1,250}|https?://[!-~]{1,250}",
    "unix:///path, tcp://host:port or http(s)://host:port",
)
NAME = Text(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "a Kubernetes name: a-z 0-9 . -")
PORT_NAME = Text(r"[0-9]{1,5}|[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", "a port's number in quotes, or its name")


class Docker(Keys):
    """Running containers with a label. Their address is the one in `network` (or the first) with `port`."""

    label: Annotated[str, PlainValidator(LABEL)]
    port: Annotated[int, PlainValidator(Integer(1, 65535))] = 8000
    network: Annotated[str, PlainValidator(Text(r"[!-~]{0,128}", "a network's name"))] = ""
    engine: Annotated[str, PlainValidator(ENGINE)] = "unix:///var/run/docker.sock"


class Kubernetes(Keys):
    """The ready endpoints of a service."""

    service: Annotated[str, PlainValidator(NAME)]
    namespace: Annotated[str, PlainValidator(NAME)] = "default"
    port: Annotated[str, PlainValidator(PORT_NAME)] = ""  # the only one
    kubeconfig: Annotated[str, PlainValidator(Text(r"[^\x00]{0,4096}", PATH.allowed))] = ""  # in the cluster


MAX_RANKS = 64
"""Data-parallel ranks at one address."""


class Discovery(Keys):
    """Each key is a source; several add up. `api`: replicas may register themselves. `dp_size`: the data-parallel ranks
    of each address that DNS, Docker or Kubernetes tells."""

    api: Annotated[bool, PlainValidator(Switch())] = False
    file: Annotated[str | None, PlainValidator(PATH)] = None
    dns: Annotated[str | None, PlainValidator(DNS_NAME)] = None
    docker: Docker | None = None
    kubernetes: Kubernetes | None = None
    dp_size: Annotated[int, PlainValidator(Integer(1, MAX_RANKS))] = 1
    empty_grace_s: Annotated[float, PlainValidator(Number(0, 86_400))] = 60.0
