"""The page: whole by itself, and nothing in it is markup that was not written here."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from verified import evidence

from homing.cli.verify.page import page
from homing.cli.verify.report import Report, Setup, in_words
from homing.core.verify.comparison import NOTHING, Comparison
from homing.core.verify.diagnosis.finding import fault
from homing.core.verify.verdict import judge

SETUP = Setup("http://gateway", "<m>", "chat", "the built-in data", 1, 8, 4, 2, 32, 2)


def report(comparison: Comparison) -> Report:
    finding = fault("code", "What was <seen>.", "What to change.")
    return Report("0", SETUP, judge(comparison), (finding,), comparison, 0.7, {}, 81, 12_345, False)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def tags(html: str) -> list[str]:
    parser = Tags()
    parser.feed(html)
    return parser.seen


def test_a_page_has_its_charts_inside_and_nothing_from_elsewhere() -> None:
    html = page(report(evidence().comparison))
    assert tags(html).count("svg") == 3
    assert tags(html).count("polyline") == 4
    assert not {"script", "link", "img", "iframe"} & set(tags(html))
    assert re.findall(r"(?:src|href)=|url\(|@import", html) == []
    assert "<m>" not in html
    assert "What was &lt;seen&gt;." in html


def test_bars_are_as_high_as_the_rates() -> None:
    html = page(report(evidence().comparison))
    heights = re.findall(r'<rect class="(\w+)".*height="([\d.]+)"><title>(.*)</title>', html)
    assert heights[:2] == [("scattered", "68.4", "a, round robin: 30%"), ("affinity", "136.8", "a, affinity: 60%")]


def test_a_measurement_that_ended_at_once_has_a_page_without_charts() -> None:
    html = page(report(NOTHING))
    assert "svg" not in tags(html)
    assert "Nothing can be said" in html


def test_words_have_the_rates_of_each_replica() -> None:
    lines = in_words(report(evidence().comparison)).splitlines()
    assert "a              30%        16        60%        16" in lines
    assert "all            30%        32        60%        32" in lines
    assert "fault (code): What was <seen>." in lines
