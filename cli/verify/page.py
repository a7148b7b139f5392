"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from importlib.resources import files

import jinja2

from homing.cli.verify import charts
from homing.cli.verify.report import Report, interval, rate
from homing.core.verify.plan import Run


def page(report: Report) -> str:
    """HTML."""
    comparison = report.comparison
    drawn = [charts.ttft(comparison.turns)] if comparison.turns else []
    if comparison.source and comparison.engines:
        drawn += [charts.hit_rates(comparison.engines), charts.requests(comparison.engines)]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"rate": rate, "interval": interval}
    template = environment.from_string(files("homing").joinpath("cli", "verify", "page.html.j2").read_text())
    return template.render(report=report, charts=drawn, hits=[comparison.hits.get(run) for run in Run])
