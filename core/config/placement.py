"""The keys of `pools.<id>.placement`: the constants of core/placement, as the file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator

from homing.core.config.kinds import Integer, Number, Switch
from homing.core.placement.settings import Settings

Tokens = Annotated[float, PlainValidator(Number(0, 1e9))]
Factor = Annotated[float, PlainValidator(Number(0, 1000))]

DEFAULTS = Settings()


class Placement(BaseModel):
    """What placement costs. docs/placement.md says what each key does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hash_preference_tokens: Tokens = DEFAULTS.hash_preference_tokens
    leave_tokens: Tokens = DEFAULTS.leave_tokens
    leave_factor: Factor = DEFAULTS.leave_factor
    roomy_leave_factor: Factor = DEFAULTS.roomy_leave_factor
    crowd_factor: Factor = DEFAULTS.crowd_factor
    delay_factor: Factor = DEFAULTS.delay_factor
    eviction_factor: Factor = DEFAULTS.eviction_factor
    spread_factor: Factor = DEFAULTS.spread_factor
    in_flight_tokens: Tokens = DEFAULTS.in_flight_tokens
    context_factor: Factor = DEFAULTS.context_factor
    max_in_flight: Annotated[int, PlainValidator(Integer(0, 1_000_000))] = DEFAULTS.max_in_flight
    sample: Annotated[int, PlainValidator(Integer(2, 1000))] = DEFAULTS.sample
    prefill_tokens_per_s: Annotated[float, PlainValidator(Number(1, 1e9))] = DEFAULTS.prefill_tokens_per_s
    cache_tokens: Annotated[float, PlainValidator(Number(1, 1e9))] = DEFAULTS.cache_tokens
    bytes_per_token: Annotated[float, PlainValidator(Number(0.1, 1000))] = DEFAULTS.bytes_per_token
    further_turns: Factor = DEFAULTS.further_turns
    slow_start_s: Annotated[float, PlainValidator(Number(0, 3600))] = DEFAULTS.slow_start_s
    read_first: Annotated[bool, PlainValidator(Switch())] = DEFAULTS.read_first
    reject_above_tokens: Tokens = DEFAULTS.reject_above_tokens

    def settings(self) -> Settings:
        return Settings(**self.model_dump())
