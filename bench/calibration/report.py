"""The page: what was compared, what agrees, what differs and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.calibration.verdicts import TurnTiming, Verdict

_VERDICTS = "## Verdicts"
_END_OF_VERDICTS = "## Time to first token"
MAX_PROBLEMS = 20  # shown of one verdict


@dataclass(frozen=True, slots=True)
class Report:
    """`versions` by distribution. `missing`: metrics of vLLM that the sim has not."""

    date: str
    versions: Mapping[str, str]
    setting: str
    verdicts: Sequence[Verdict]
    turns: Sequence[TurnTiming]
    missing: Sequence[str]

    @property
    def agrees(self) -> bool:
        return all(verdict.agrees for verdict in self.verdicts)

    def markdown(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# Calibration: the sim beside a real vLLM"
        yield ""
        yield "Written by `make calibrate`, not by hand. Both engines get the same requests, one after the other."
        yield ""
        yield f"- {self.date}, {', '.join(f'{name} {version}' for name, version in self.versions.items())}"
        yield f"- {self.setting}"
        yield ""
        yield _VERDICTS
        yield ""
        yield "| what | compared | agrees |"
        yield "|---|---|---|"
        for verdict in self.verdicts:
            agrees = "**no**" if not verdict.agrees else "yes, but for what stays" if verdict.known else "yes"
            yield f"| {verdict.name} | {verdict.compared} | {agrees} |"
        yield ""
        yield from self._differences()
        yield _END_OF_VERDICTS
        yield ""
        yield "Medians over the conversations; only the order is compared, for the hardware is another."
        yield ""
        yield "| turn | tokens to compute | vLLM, ms | sim, ms |"
        yield "|---|---|---|---|"
        for turn in self.turns:
            yield f"| {turn.turn} | {turn.uncached_tokens:.0f} | {turn.vllm_ms:.1f} | {turn.sim_ms:.1f} |"
        yield ""
        yield "## Metrics that the sim does not have"
        yield ""
        yield ", ".join(f"`{name}`" for name in self.missing) + "."

    def _differences(self) -> Iterator[str]:
        for verdict in self.verdicts:
            if verdict.problems:
                yield f"### Not agreed: {verdict.name}"
                yield ""
                yield from (f"- {_one_line(problem)}" for problem in verdict.problems[:MAX_PROBLEMS])
                if len(verdict.problems) > MAX_PROBLEMS:
                    yield f"- and {len(verdict.problems) - MAX_PROBLEMS} more"
                yield ""
        reasons: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for known in verdict.known:
                reasons.setdefault(known.why, []).append(known.where)
        if reasons:
            yield "Differences that stay:"
            yield ""
            yield from (f"- {'; '.join(where)}. Why: {why}." for why, where in reasons.items())
            yield ""


def verdicts_of(page: str) -> str:
    """The part of a page that must be the same whenever nothing has changed. Empty when there is none."""
    _, _, rest = page.partition(_VERDICTS)
    verdicts, end, _ = rest.partition(_END_OF_VERDICTS)
    return verdicts.strip() if end else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
