"""The constants of placement, a set for each pool (`pools.<id>.placement`). Costs are in tokens of prefill."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """docs/placement.md says what each does and how flat the optimum around it is."""

    hash_preference_tokens: float = 1000.0  # client-chosen ids: what it may cost to be where Envoy alone would go
    leave_tokens: float = 4000.0  # what a move costs at least
    leave_factor: float = 3.0  # what it costs for each token that it throws away, where there is no room for it
    roomy_leave_factor: float = 0.5  # the same where there is
    crowd_factor: float = 2.0  # how much more of that for each request that waits, on the mean
    delay_factor: float = 0.3  # what a token of prefill costs those who wait behind it, for each of them
    eviction_factor: float = 0.7  # what will not fit, for each further turn
    spread_factor: float = 0.25  # what a new session pays for sessions that are there already
    in_flight_tokens: float = 20.0  # what a request in flight costs those beside it, in decoding
    context_factor: float = 0.02  # what each token of its context costs them beside that
    max_in_flight: int = 0  # requests in flight at a replica beyond which it takes no new session; 0: any number
    sample: int = 32  # replicas looked at for a placement; more only where there are no more
    prefill_tokens_per_s: float = 8000.0  # a replica of weight 1, until its own speed is learned
    cache_tokens: float = 400_000.0  # a replica's KV cache, until its engine has told
    bytes_per_token: float = 4.0  # of a request's body, until the engines' counters have told
    further_turns: float = 8.0  # of a session, until learned
    slow_start_s: float = 30.0  # until a replica that comes, or comes back, takes its part of the new sessions
    read_first: bool = True  # the first prompt of a session that the client named is read, to place it where it is held
    reject_above_tokens: float = 0.0  # every replica has more waiting: 429; 0: never
