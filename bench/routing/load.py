"""Sends the work, each request at its time whatever became of those before it, and notes what came of each."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from bench.routing.client import Answer, AskedError, ask
from bench.routing.work import Turn, Work

ATTEMPTS = 4
AGAIN_S = 0.2
"""Simulated seconds before a client asks again."""


class Ids(StrEnum):
    """Who names a session: the client from the beginning, the gateway by its first answer, or nobody."""

    GIVEN = "given"
    ISSUED = "issued"
    NONE = "none"


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Of one turn, in simulated seconds since it was due. `why` is empty where it was served, and says for the others
    what was wrong, or that it had not ended when the run did."""

    turn: int  # its place in the work
    number: int  # of the session's turns
    due_s: float
    late_s: float  # so much later than due the generator sent it
    ttft_s: float
    total_s: float
    replica: str
    prompt_tokens: int
    cached_tokens: int
    attempts: int
    why: str = ""


UNFINISHED = "unfinished"


@dataclass
class Load:
    """One contender's share of it. `ports`: gateways; sessions are spread over them, turn by turn."""

    work: Work
    ports: Sequence[int]
    ids: Ids
    time_scale: float
    outcomes: list[Outcome] = field(default_factory=list)
    moved: int = 0  # turns that another replica served than the turn before
    _began: float = 0.0
    _names: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """Simulated seconds since the beginning."""
        return (time.perf_counter() - self._began) * self.time_scale

    async def run(self, at_most_s: float) -> None:
        """Until every turn has its outcome, or `at_most_s` simulated seconds have passed."""
        gc.collect()
        gc.freeze()
        self._began = time.perf_counter()
        tasks: dict[asyncio.Task[None], int] = {}
        for i, turn in enumerate(self.work.turns):
            wait_s = turn.due_s - self.now_s
            if wait_s > 0:
                await asyncio.sleep(wait_s / self.time_scale)
            tasks[asyncio.create_task(self._turn(i, turn))] = i
        left_s = max(at_most_s - self.now_s, 0.0) / self.time_scale
        _, open_tasks = await asyncio.wait(tasks, timeout=left_s)
        for task in open_tasks:
            task.cancel()
            self.outcomes.append(self._unfinished(tasks[task]))
        await asyncio.gather(*open_tasks, return_exceptions=True)
        gc.unfreeze()

    async def _turn(self, place: int, turn: Turn) -> None:
        late_s = self.now_s - turn.due_s
        body = turn.body()
        first = self._names.get(turn.session)
        if first is None:
            first = self._names[turn.session] = asyncio.get_running_loop().create_future()
            if self.ids is not Ids.ISSUED:
                first.set_result(self.work.session_id(turn.session))
            session = self.work.session_id(turn.session) if self.ids is Ids.GIVEN else None
            heard = first if self.ids is Ids.ISSUED else None
        else:
            named = await asyncio.shield(first)
            session, heard = (None if self.ids is Ids.NONE else named), None
        why = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._answers[place] = Answer()
                await ask(self._port(place, attempt), body, session, answer, heard)
                if answer.text != turn.answer:
                    raise AskedError("another answer")
                del self._answers[place]
                return self._served(place, turn, late_s, answer, attempt)
            except (AskedError, OSError) as error:
                why = str(error) or type(error).__name__
                await asyncio.sleep(AGAIN_S / self.time_scale)
        if not first.done():
            first.set_result("")
        waited_s = self.now_s - turn.due_s
        lost = Outcome(place, turn.number, turn.due_s, late_s, waited_s, waited_s, "", 0, 0, ATTEMPTS, why)
        self.outcomes.append(lost)
        return None

    def _served(self, place: int, turn: Turn, late_s: float, answer: Answer, attempt: int) -> None:
        ttft_s = self._ttft_s(turn, answer)
        before = self._last.get(turn.session)
        self._last[turn.session] = answer.replica
        self.moved += before is not None and before != answer.replica
        self.outcomes.append(
            Outcome(
                place,
                turn.number,
                turn.due_s,
                late_s,
                ttft_s,
                self.now_s - turn.due_s,
                answer.replica,
                answer.prompt_tokens,
                answer.cached_tokens,
                attempt,
            )
        )

    def _unfinished(self, place: int) -> Outcome:
        """Its first token may have come."""
        turn, answer = self.work.turns[place], self._answers.get(place)
        waited_s = self.now_s - turn.due_s
        ttft_s = self._ttft_s(turn, answer) if answer is not None and answer.first_s else waited_s
        return Outcome(place, turn.number, turn.due_s, 0.0, ttft_s, waited_s, "", 0, 0, 1, UNFINISHED)

    def _ttft_s(self, turn: Turn, answer: Answer) -> float:
        return (answer.first_s - self._began) * self.time_scale - turn.due_s

    def _port(self, place: int, attempt: int) -> int:
        return self.ports[(place + attempt) % len(self.ports)]
