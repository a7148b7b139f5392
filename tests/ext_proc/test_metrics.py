"""What a picker exports, value by value, and that docs/metrics.md lists the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.context.lost import Finding
from homing.core.fleet import Fleet, Pool, Replica
from homing.core.placement.decision import Reason
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.prefix.events import Stored
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.core.session import Homes
from homing.ext_proc.counts import Counts
from homing.ext_proc.events import BodyAnswer, Event, Reject, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Stage
from homing.ext_proc.kv_source import Fate
from homing.ext_proc.metrics import COUNTERS, PickerCollector, SettingsCollector, Ttft
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.picker import Picker
from homing.ext_proc.pins import metrics as pins_metrics
from homing.ext_proc.pins.counts import Peer, PinCounts, Read, Why
from homing.ext_proc.prefix_metrics import PrefixCollector
from homing.ext_proc.prefixes import Prefixes
from homing.ext_proc.proof import Incomplete, Unchecked
from homing.ext_proc.tokenizing import Learning

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "metrics.md").read_text()
REPLICAS = (Replica("gpu-a", "10.0.0.1:8000"), Replica("gpu-b", "10.0.0.2:8000", healthy=False))
FLEET = Fleet((Pool("p", "served", ("alias",), replicas=REPLICAS),))
ANY_EVENT: Event = RequestBodyReceived(b"")


class Exporting:
    """A picker with its registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.picker = Picker(
            Placer(Homes(100.0, 2), Chains(100.0, 1000), Load(), b"secret", lambda n: 0),
            lambda: 0.0,
            Ttft(self.registry),
        )
        self.registry.register(PickerCollector(self.picker))
        self.pins = PinCounts()
        self.registry.register(pins_metrics.PinsCollector(self.pins))
        self.registry.register(SettingsCollector(lambda: True))
        self.prefixes = Prefixes(Index())
        self.registry.register(PrefixCollector(self.prefixes))

    def route(self, session: str, **more: bytes):
        key = session.encode()
        headers = {"x-session-id": key, "x-homing-given": key, "x-homing-key": b"/" + key}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        return self.picker.route(RequestHeadersReceived(headers, "alias"))

    def samples(self, name: str) -> dict[str, float]:
        """Of one metric, by the labels as text."""
        text = generate_latest(self.registry).decode()
        return {
            labels: float(value) for labels, value in re.findall(rf"^{name}((?:{{.*}})?) (\S+)$", text, re.MULTILINE)
        }

    def use_all(self) -> None:
        """Everything that is counted happens at least once."""
        routed = self.route("s", x_homing_odd=b"duplicate", x_homing_model=b"alias")
        assert isinstance(routed.rewrite(b'{"model":"other"}'), Reject)
        ref = dict(routed.set_headers)["x-homing-ref"].decode()
        self.route("t", x_session_close=b"true").release()
        self.picker.counts.keyless["first"] += 1
        self.pins.failed[Peer.REDIS, Why.AWAY] += 1
        self.pins.read[Peer.SIBLING, Read.FOUND] += 1
        for counter in (self.pins.told, self.pins.heard, self.pins.retold):
            counter[Peer.SIBLING] += 1
        self.picker.counts.learned["p"] += 1
        self.picker.counts.repairs["p", "developer"] += 1
        self.picker.counts.observed_repairs["p", "developer"] += 1
        self.picker.counts.system_texts["p", "kept"] += 1
        self.picker.counts.complete["p"] += 1
        self.picker.counts.incomplete["p", "lost"] += 1
        self.picker.counts.unchecked["queue"] += 1
        self.picker.counts.texts_read["found"] += 1
        self.picker.violated(Stage.FRESH, ANY_EVENT)
        self.picker.adopt(Fleet((Pool("p", "served", ("alias",), replicas=(REPLICAS[0], Replica("c", "10.0.0.3:1"))),)))
        self.picker.finished(Outcome("p", "c", 200, 0.3, 1.0, 2, "hash", ref))
        self.hear_events()
        self.picker.finished(Outcome("p", "c", 200, None, 1.0, 1, "fallback", ""))

    def hear_events(self) -> None:
        engine = "engine: {kv_events: 'tcp://{host}:5557'}"
        self.prefixes.configure(parse(f"pools: {{p: {{{engine}, replicas: [{{id: gpu-a, address: 'h:1'}}]}}}}", "f"))
        self.prefixes.adopt(FLEET)
        self.prefixes.index.placed("p", "gpu-a", Prompt((1, 2), (5, 10)), 0.0)
        blocks = self.prefixes.index.pool("p").blocks
        blocks.apply("gpu-a", Stored((3,), 2, range(16), 16))
        blocks.begin("gpu-a", complete=True)
        blocks.apply("gpu-a", Stored((1,), None, range(16), 16))
        self.prefixes.kv_counts.batches["p", Fate.APPLIED] += 2
        self.prefixes.kv_counts.passed_over["p"] += 3
        self.prefixes.kv_counts.restarts["p"] += 4
        self.prefixes.learner.outcomes["p", Learning.LEARNED] += 5


@pytest.fixture
def exporting() -> Exporting:
    exporting = Exporting()
    exporting.picker.adopt(FLEET)
    return exporting


def test_before_anything_happened(exporting: Exporting):
    assert exporting.samples("homing_in_flight") == {
        '{pool="p",replica="gpu-a"}': 0,
        '{pool="p",replica="gpu-b"}': 0,
    }
    assert exporting.samples("homing_sessions") == {"": 0}
    assert exporting.samples("homing_sessions_evicted_total") == {"": 0}
    assert exporting.samples("homing_decisions_total") == {}


def test_before_the_first_fleet():
    assert Exporting().samples("homing_in_flight") == {}


def test_what_happened_is_what_is_exported(exporting: Exporting):
    exporting.use_all()
    expected = {
        "homing_decisions_total": {'{pool="p",reason="hash"}': 2},
        "homing_sessions_closed_total": {'{by="client"}': 1},
        "homing_keyless_total": {'{outcome="first"}': 1},
        "homing_fallbacks_total": {'{pool="p"}': 1},
        "homing_outcomes_total": {'{pool="p",replica="c",status="2xx"}': 2},
        "homing_retried_total": {'{pool="p"}': 1},
        "homing_rehomed_total": {'{pool="p"}': 1},
        "homing_rejected_total": {'{reason="hint"}': 1},
        "homing_odd_session_ids_total": {'{kind="duplicate"}': 1},
        "homing_protocol_violations_total": {'{stage="fresh"}': 1},
        "homing_prefix_marks": {'{pool="p"}': 2},
        "homing_prefix_blocks": {'{pool="p",replica="gpu-a"}': 1, '{pool="p",replica="gpu-b"}': 0},
        "homing_prefix_complete": {'{pool="p",replica="gpu-a"}': 1, '{pool="p",replica="gpu-b"}': 0},
        "homing_prefix_blocks_ignored_total": {'{pool="p"}': 1},
        "homing_kv_batches_total": {'{outcome="applied",pool="p"}': 2},
        "homing_kv_passed_over_total": {'{pool="p"}': 3},
        "homing_kv_restarts_total": {'{pool="p"}': 4},
        "homing_prompts_learned_total": {'{outcome="learned",pool="p"}': 5},
        "homing_in_flight": {'{pool="p",replica="gpu-a"}': 1, '{pool="p",replica="c"}': 0},
    }
    assert {name: exporting.samples(name) for name in expected} == expected


def test_sessions_and_evictions(exporting: Exporting):
    for session in ("a", "b", "c"):
        exporting.route(session).release()
    assert exporting.samples("homing_sessions") == {"": 2}
    assert exporting.samples("homing_sessions_evicted_total") == {"": 1}


def test_time_to_first_token_falls_into_its_bucket(exporting: Exporting):
    exporting.picker.finished(Outcome("p", "gpu-a", 200, 0.3, 1.0, 1, "home", ""))
    buckets = exporting.samples("homing_ttft_seconds_bucket")
    assert buckets['{le="0.25",pool="p",replica="gpu-a"}'] == 0
    assert buckets['{le="0.5",pool="p",replica="gpu-a"}'] == 1
    assert exporting.samples("homing_ttft_seconds_sum") == {'{pool="p",replica="gpu-a"}': 0.3}


def test_every_count_of_the_picker_is_exported():
    assert set(COUNTERS) == set(Counts.__dataclass_fields__)
    assert set(pins_metrics.COUNTERS) == set(PinCounts.__dataclass_fields__)


def exported(registry: CollectorRegistry) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric that has a sample."""
    found = {}
    for family in registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            found[name] = (family.type, frozenset(sample.labels) - {"le"})
    return found


def test_docs_and_code_agree_on_metrics_types_and_labels(exporting: Exporting):
    exporting.use_all()
    rows = re.findall(r"^\| `(homing_\w+)` \| (\w+) \| ([^|]*)\| [^|]+ \|$", DOCS, re.MULTILINE)
    documented = {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert exported(exporting.registry) == documented


def documented_values(metric: str, label: str) -> set[str]:
    return set(re.findall(rf"^\| `{metric}` \| `{label}` \| `(\w+)` \|", DOCS, re.MULTILINE))


def test_docs_and_code_agree_on_the_values_of_labels():
    made_in_envoy = re.findall(r'"x-homing-odd", "(\w+)"', (ROOT / "envoy" / "filters.yaml.j2").read_text())
    assert documented_values("homing_decisions_total", "reason") == {*Reason, "none"}
    assert documented_values("homing_protocol_violations_total", "stage") == {stage.name.lower() for stage in Stage}
    assert documented_values("homing_odd_session_ids_total", "kind") == {"long", "non_ascii", *made_in_envoy}
    assert documented_values("homing_pins_failed_total", "peer") == set(Peer)
    assert documented_values("homing_pins_failed_total", "why") == set(Why)
    assert documented_values("homing_pins_read_total", "outcome") == set(Read)
    assert documented_values("homing_kv_batches_total", "outcome") == set(Fate)
    assert documented_values("homing_prompts_learned_total", "outcome") == set(Learning)
    assert documented_values("homing_rejected_total", "reason") == {
        "hint",
        "context_length",
        "isolation",
        "overload",
        "subset",
        "response",
        "session",
    }
    assert documented_values("homing_system_texts_total", "outcome") == set(Finding)
    assert documented_values("homing_context_incomplete_total", "reason") == set(Incomplete)
    assert documented_values("homing_context_unchecked_total", "reason") == set(Unchecked)
    assert documented_values("homing_system_texts_read_total", "outcome") == set(Read)


def test_a_rewritten_alias_counts_nothing_as_refused(exporting: Exporting):
    assert exporting.route("s").rewrite(b'{"model":"alias"}') == BodyAnswer(b'{"model":"served"}')
    assert exporting.samples("homing_rejected_total") == {}
