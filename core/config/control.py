"""The section `control`: what several control services have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, PlainValidator

from homing.core.config.address import Address
from homing.core.config.keys import Keys
from homing.core.config.kinds import Endpoint, ListOf, StateStore, Text
from homing.core.config.secret import SecretRef

CONTROL_NAME = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a letter or digit, then up to 62 of A-Z a-z 0-9 . _ -")


class ControlConfig(Keys):
    """`state`: where they keep what they know together; `name`: of the installation, where several use one Redis;
    `xds`: where Envoys find each of them."""

    state: Annotated[str | SecretRef, PlainValidator(StateStore())] = "local"
    name: Annotated[str, PlainValidator(CONTROL_NAME)] = "homing"
    xds: Annotated[
        tuple[Annotated[Address, PlainValidator(Endpoint())], ...], BeforeValidator(ListOf("addresses", 0, 16))
    ] = ()
