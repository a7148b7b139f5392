"""The page: every table, with its charts in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.routing.report import Report, overview, table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c2430 }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px }
th, td { border: 1px solid #d6dce5; padding: .25rem .5rem; text-align: right }
th:first-child, td:first-child { text-align: left }
th { background: #f1f4f8 } img { max-width: 100% }
"""


def html(reports: Sequence[Report], charts: Sequence[Path]) -> str:
    """One file that needs no other."""
    parts = ["<h1>Routing quality</h1>", f"<p>{escape(_conditions(reports[0]))}</p>", _rows(overview(reports))]
    for report in reports:
        title, _, rows = table(report).partition("\n\n")
        parts += [f"<h2>{escape(title.replace('**', ''))}</h2>", _rows(rows)]
        for chart in charts:
            if chart.stem.startswith(f"{report.stem}-"):
                data = base64.b64encode(chart.read_bytes()).decode()
                parts.append(f'<img alt="{escape(chart.stem)}" src="data:image/png;base64,{data}">')
    body = "\n".join(parts)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Routing quality</title>\
<style>{_STYLE}</style><body>{body}</body></html>\n'


def _conditions(report: Report) -> str:
    conditions = report.conditions
    return (
        f"TTFT p90 / p99 in simulated seconds, as the client saw them. Replicas: A100 with Llama 8B at "
        f"{conditions.speed:g} of its speed, {conditions.time_scale:g} simulated seconds in a real one. "
        f"{report.machine}. {'; '.join(report.versions)}."
    )


def _rows(markdown: str) -> str:
    lines = [line.strip("|").split("|") for line in markdown.splitlines() if line.startswith("|")]
    head, _, *rows = lines
    shown = [_row("th", head), *(_row("td", row) for row in rows)]
    return "<table>" + "".join(shown) + "</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_bold(cell)}</{tag}>" for cell in cells) + "</tr>"


def _bold(cell: str) -> str:
    parts = escape(cell.strip()).split("**")
    return "".join(f"<b>{part}</b>" if i % 2 else part for i, part in enumerate(parts))
