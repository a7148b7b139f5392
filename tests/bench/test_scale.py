"""Does the benchmark of growth run, and is what it says of its own figures right? No times are asserted."""

import json
import subprocess
import sys
from math import inf, isnan
from pathlib import Path

import pytest

from bench.scale.__main__ import PARTS
from bench.scale.curve import Curve
from bench.scale.report import Report, chart, figure
from bench.scale.sizes import SMOKE

BY = {
    "placement": SMOKE.replicas,
    "sessions": SMOKE.sessions,
    "membership": SMOKE.replicas,
    "exchange": None,
    "fan-out": None,
}


def curve(*points: tuple[int, float], bound: float | None = None) -> Curve:
    return Curve("part", "what", "ms", "replicas", points, bound, "so much")


@pytest.mark.slow
def test_every_part_is_measured_at_every_size(tmp_path: Path):
    written, page = tmp_path / "new" / "scale.json", tmp_path / "scale.html"
    command = (sys.executable, "-m", "bench.scale", "--smoke", "--json", str(written), "--html", str(page))
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    curves = json.loads(written.read_text())["curves"]
    assert {c["part"] for c in curves} == set(PARTS)
    for c in curves:
        sizes = SMOKE.gateways if c["by"] == "gateways" else BY[c["part"]] or SMOKE.replicas
        assert tuple(size for size, _ in c["points"]) == sizes
        assert all(value >= 0 for _, value in c["points"])
        assert f"| {c['what']}, {c['unit']} |" in done.stdout
    assert page.read_text().count("<svg") == len({(c["part"], c["by"]) for c in curves})


@pytest.mark.parametrize(
    ("points", "exponent"),
    [
        (((1, 5.0), (10, 5.0), (100, 5.0)), 0.0),
        (((1, 2.0), (10, 20.0), (100, 200.0)), 1.0),
        (((1, 2.0), (10, 200.0)), 2.0),
        (((1, 0.0), (10, 3.0), (100, 30.0)), 1.0),
    ],
)
def test_growth_is_the_slope_of_the_logarithms(points: tuple[tuple[int, float], ...], exponent: float):
    assert curve(*points).exponent == pytest.approx(exponent, abs=1e-9)


def test_growth_of_one_point_is_not_known():
    assert isnan(curve((1, 2.0)).exponent)


@pytest.mark.parametrize(
    ("bound", "size"),
    [(None, inf), (300.0, inf), (200.0, inf), (20.0, 10.0), (63.2455532, 31.6227766), (1.0, 0.0)],
)
def test_a_curve_fits_up_to_where_it_crosses_its_bound(bound: float | None, size: float):
    found = curve((1, 2.0), (10, 20.0), (100, 200.0), bound=bound).fits_to
    assert found == size if size in (inf, 0.0) else found == pytest.approx(size)


def test_the_table_says_how_far_it_fits():
    report = Report("a machine", ["homing"], [curve((10, 1.0), (1_000, 100.0), bound=31.6227766), curve((10, 1.0))])
    assert "| what, ms | 1.00 | 100 | n^1.00 | **320** |" in report.markdown()
    assert "| what, ms | 1.00 |  |  |  |" in report.markdown()
    assert "Bounds: 31.6228 ms: so much." in report.markdown()


@pytest.mark.parametrize(("number", "text"), [(0.0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (12345.6, "12,346")])
def test_figures_have_three_digits(number: float, text: str):
    assert figure(number) == text


def test_a_chart_has_a_line_for_each_curve_and_bears_zero():
    drawn = chart([curve((1, 2.0), (100, 4.0)), curve((1, 0.0), (100, 4.0))])
    assert drawn.count("<polyline") == 2
    assert chart([curve((1, 0.0))]) == ""
