"""What the file says of the conversations of a pool: by which template, repaired how, how long, whose cache they
share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainValidator, model_validator

from homing.core.config.keys import Keys
from homing.core.config.kinds import Choice, IntegerOr, Number, Switch, Text
from homing.core.fleet import MODES

MODE = Choice(MODES)

AutoOff = Annotated[Literal["auto", "off"], PlainValidator(Choice(("auto", "off")))]
LostSystem = Literal["off", "sample", "report", "restore"]


FILE_PATH = Text(r"[^\0-\x1f\x7f]{1,4096}", "a path of 1 to 4096 printable characters")


class TemplateConfig(Keys):
    """Where a pool's chat template is had from: one of the three. Paths are relative to the file that says so."""

    source: Annotated[Literal["engine", "none"], PlainValidator(Choice(("engine", "none")))] = "engine"
    file: Annotated[str, PlainValidator(FILE_PATH)] = ""
    directory: Annotated[str, PlainValidator(FILE_PATH)] = ""

    @model_validator(mode="after")
    def _one(self) -> TemplateConfig:
        if len(self.model_fields_set) > 1:
            raise ValueError("one of source, file and directory")
        return self


class RepairConfig(Keys):
    """Which repairs may be made, where the chat template needs them. `percent` of the sessions get them."""

    system: AutoOff = "auto"
    developer: AutoOff = "auto"
    turns: AutoOff = "auto"
    tools: AutoOff = "auto"
    think: Annotated[Literal["keep", "strip"], PlainValidator(Choice(("keep", "strip")))] = "keep"
    lost_system: Annotated[LostSystem, PlainValidator(Choice(("off", "sample", "report", "restore")))] = "off"
    percent: Annotated[float, PlainValidator(Number(0, 100))] = 100.0


class ProofConfig(Keys):
    """Which share of the requests is proved, beside those that were repaired. `ask`: also of those whose body nothing
    else needs."""

    sample: Annotated[float, PlainValidator(Number(0, 1))] = 0.01
    ask: Annotated[bool, PlainValidator(Switch())] = False


class ContextConfig(Keys):
    """How many tokens a request may have, the answer's included; 0: nothing is counted; auto: as the engines say."""

    max_tokens: Annotated[int | Literal["auto"], PlainValidator(IntegerOr(0, 100_000_000, "auto"))] = 0
    over: Annotated[Literal["reject", "trim"], PlainValidator(Choice(("reject", "trim")))] = "reject"

    def limit(self, engines: int) -> int:
        """`engines`: what the pool's own take, 0 while nobody knows. 0 for none."""
        return engines if self.max_tokens == "auto" else self.max_tokens


class IsolationConfig(Keys):
    """Whose prefix cache a request may share. With a salt, the pool fails closed."""

    cache_salt: Annotated[Literal["off", "tenant"], PlainValidator(Choice(("off", "tenant")))] = "off"
