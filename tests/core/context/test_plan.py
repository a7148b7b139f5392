"""Which settings, with which templates, cost a body read; and what a plan says beside it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from homing.core.chat.repairs.names import Repair
from homing.core.config import PoolConfig, parse
from homing.core.context.budget import Budget
from homing.core.context.plan import Need, Plan
from homing.core.template.record import Capabilities, Fate, Think, ToolIds

CLEAN = Capabilities()
KEEPS_FIRST = Capabilities(systems=Fate.FIRST_ONLY)
DOCS = (Path(__file__).parents[3] / "docs" / "context.md").read_text()


def pool(**settings: object) -> PoolConfig:
    file = {
        "tenants": {"header": "x-tenant", "trusted": True},
        "pools": {"p": {"replicas": [{"id": "r", "address": "10.0.0.1:8000"}], **settings}},
    }
    return parse(json.dumps(file), "f").pools[0]


@dataclass(frozen=True)
class Case:
    name: str
    settings: dict[str, object]
    record: Capabilities | None
    needs: frozenset[Need]


def case(name: str, settings: dict[str, object], record: Capabilities | None, *needs: Need) -> Case:
    return Case(name, settings, record, frozenset(needs))


CASES = [
    case("a clean template and the defaults", {}, CLEAN),
    case("an unknown template", {}, None),
    case("a template that only trims, strips and dates", {}, Capabilities(trims=True, dated=True, default_system=True, think=Think.STRIPPED)),
    case("a system text that moves arrives whole", {}, Capabilities(system=Fate.MOVES, systems=Fate.MERGED)),
    case("a template that keeps the first", {}, KEEPS_FIRST, Need.REPAIR),
    case("one that drops developer", {}, Capabilities(developer=Fate.DROPPED), Need.REPAIR),
    case("one that wants alternation", {}, Capabilities(alternates=True), Need.REPAIR),
    case("one that wants nine letters", {}, Capabilities(tool_ids=ToolIds.NINE), Need.REPAIR),
    case("one that loses tools", {}, Capabilities(tool=Fate.DROPPED), Need.REPAIR),
    case("the repair is switched off", {"repair": {"system": "off"}}, KEEPS_FIRST),
    case("another is", {"repair": {"developer": "off"}}, KEEPS_FIRST, Need.REPAIR),
    case("think blocks to be stripped", {"repair": {"think": "strip"}}, CLEAN, Need.REPAIR),
    case("ramped down to nothing", {"repair": {"percent": 0}}, KEEPS_FIRST),
    case("ramped up a little", {"repair": {"percent": 1}}, KEEPS_FIRST, Need.REPAIR),
    case("observed", {"mode": "observe"}, KEEPS_FIRST, Need.REPAIR),
    case("only routed", {"mode": "route", "repair": {"lost_system": "report"}, "context": {"max_tokens": 5}}, KEEPS_FIRST),
    case("off", {"mode": "off", "repair": {"lost_system": "report"}, "context": {"max_tokens": 5}}, KEEPS_FIRST),
    case("a budget", {"context": {"max_tokens": 5}}, CLEAN, Need.BUDGET),
    case("the engines' own budget, which nobody knows yet", {"context": {"max_tokens": "auto"}}, CLEAN),
    case("what to do beyond, and no limit", {"context": {"over": "trim"}}, CLEAN),
    case("lost texts in a sample", {"repair": {"lost_system": "sample"}}, CLEAN, Need.LOST_SYSTEM),
    case("lost texts restored", {"repair": {"lost_system": "restore"}}, None, Need.LOST_SYSTEM),
    case("isolation", {"isolation": {"cache_salt": "tenant"}}, CLEAN, Need.SALT),
    case("isolation holds in every mode", {"mode": "off", "isolation": {"cache_salt": "tenant"}}, CLEAN, Need.SALT),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_costs_a_body_read(case: Case):
    assert Plan.of(pool(**case.settings), case.record).needs == case.needs


@pytest.mark.parametrize(
    ("mode", "places", "observes"),
    [("off", False, False), ("observe", True, True), ("route", True, False), ("full", True, False)],
)
def test_modes(mode: str, places: bool, observes: bool):
    plan = Plan.of(pool(mode=mode), CLEAN)
    assert (plan.places, plan.observes) == (places, observes)


def test_the_budget_is_what_the_file_says_or_what_the_engines_take():
    assert Plan.of(pool(context={"max_tokens": "auto", "over": "trim"}), CLEAN, 4096).budget == Budget(4096, True)
    assert Plan.of(pool(context={"max_tokens": 100}), CLEAN, 4096).budget == Budget(100)
    assert Plan.of(pool(), CLEAN, 4096).budget is None


def test_the_docs_list_every_repair_and_no_other():
    table = DOCS.partition("## Repairs")[2].partition("\n**")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(Repair)
