"""The control service's own metrics, read off its parts when they are scraped. Documented in docs/api.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from homing.control.ads import Answer
from homing.control.ads_server import AdsServer
from homing.control.api_models import short
from homing.control.discovery.sources import Sources
from homing.control.feed import Feed
from homing.control.leadership.peer import Peer
from homing.control.leadership.standing import Role
from homing.control.snapshot import ORDER
from homing.control.telling import Telling
from homing.control.watch import FleetWatch
from homing.core.fleet import State


@dataclass(frozen=True, slots=True)
class ControlCollector(Collector):
    """Nothing is counted here: every number is where it comes about."""

    watch: FleetWatch
    sources: Sources
    telling: Telling
    feed: Feed
    ads: AdsServer
    peer: Peer | None = None

    def collect(self) -> Iterable[Metric]:
        yield from self._fleet()
        yield from self._sources()
        yield from self._xds()
        yield from self._rollouts()
        yield from self._control()

    def _fleet(self) -> Iterable[Metric]:
        replicas = GaugeMetricFamily("homing_replicas", "Replicas by state.", labels=["pool", "state"])
        healthy = GaugeMetricFamily(
            "homing_replica_healthy", "Whether a replica's probes succeed.", labels=["pool", "replica"]
        )
        for pool in self.watch.membership.view.fleet.pools:
            for state in State:
                replicas.add_metric([pool.id, state], sum(r.state is state for r in pool.replicas))
            for replica in pool.replicas:
                healthy.add_metric([pool.id, replica.id], float(replica.healthy))
        known = GaugeMetricFamily("homing_template_known", "Whether a chat template was probed.", labels=["pool"])
        for pool in self.watch.membership.view.fleet.pools:
            known.add_metric([pool.id], float(pool.template is not None))
        failing = GaugeMetricFamily(
            "homing_replica_failing", "Whether a replica fails requests.", labels=["pool", "replica"]
        )
        for pool in self.watch.membership.view.fleet.pools:
            for replica in pool.replicas:
                failing.add_metric([pool.id, replica.id], float(replica.failing))
        yield from (replicas, healthy, failing, known)

    def _sources(self) -> Iterable[Metric]:
        probes = CounterMetricFamily("homing_probes", "Health probes by result.", labels=["pool", "result"])
        for (pool_id, ok), count in self.watch.prober.probes.items():
            probes.add_metric([pool_id, "healthy" if ok else "unhealthy"], count)
        yield probes
        failures = CounterMetricFamily(
            "homing_name_resolution_failures", "Replicas whose name did not resolve, per round.", labels=["pool"]
        )
        for pool_id, count in self.watch.discovery.failures.items():
            failures.add_metric([pool_id], count)
        yield failures
        up = GaugeMetricFamily("homing_source_up", "Whether a source of replicas answers.", labels=["pool", "kind"])
        for (pool_id, kind), health in self.sources.health.items():
            up.add_metric([pool_id, kind], float(health.answered and not health.error))
        yield up
        yield CounterMetricFamily("homing_source_failures", "Failures of sources of replicas.", self.sources.failures)
        reloader = self.watch.reloader
        yield GaugeMetricFamily(
            "homing_config_good", "Whether the newest file was accepted.", float(reloader.refused is None)
        )
        reloads = CounterMetricFamily("homing_config_reloads", "Changed files by result.", labels=["result"])
        reloads.add_metric(["applied"], reloader.applied)
        reloads.add_metric(["rejected"], reloader.rejected)
        yield reloads

    def _xds(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("homing_xds_streams", "Connected Envoys.", len(self.ads.streams))
        nacked = GaugeMetricFamily("homing_xds_nacked_streams", "Envoys that refuse the newest.", labels=["type"])
        for url in ORDER:
            states = (s.types[url] for s in self.ads.streams if url in s.types)
            nacked.add_metric([short(url)], sum(state.answer is Answer.NACKED for state in states))
        yield nacked
        counts = self.ads.counts
        yield _by_type("homing_xds_responses", "Responses sent.", counts.responses)
        yield _by_type("homing_xds_acks", "Responses accepted.", counts.acks)
        yield _by_type("homing_xds_nacks", "Responses refused.", counts.nacks)
        yield CounterMetricFamily("homing_xds_snapshots", "Snapshots published.", self.ads.serial)

    def _rollouts(self) -> Iterable[Metric]:
        late = CounterMetricFamily("homing_rollout_late", "Waits that ran out, by who was late.", labels=["who"])
        late.add_metric(["envoy"], self.ads.counts.late)
        late.add_metric(["picker"], self.feed.late)
        yield late
        failures = CounterMetricFamily("homing_rollout_failures", "What could not be made.", labels=["what"])
        for what in ("snapshot", "files"):
            failures.add_metric([what], self.telling.failures[what])
        yield failures
        yield CounterMetricFamily("homing_last_good_writes", "Last-good files written.", self.telling.writes)
        yield GaugeMetricFamily("homing_feed_pickers", "Pickers heard of in the last minute.", len(self.feed.pickers))

    def _control(self) -> Iterable[Metric]:
        now = self.peer.role if self.peer is not None else Role.LEADING
        role = GaugeMetricFamily("homing_control_role", "1 for the part that this service has.", labels=["role"])
        for each in Role:
            role.add_metric([each], float(each is now))
        yield role
        terms, failures = (self.peer.terms, self.peer.failures) if self.peer is not None else (0, 0)
        yield CounterMetricFamily("homing_control_terms", "How often this service began to lead.", terms)
        yield CounterMetricFamily("homing_control_store_failures", "Rounds with the store that failed.", failures)


def registry(*collectors: Collector) -> CollectorRegistry:
    """A registry of its own, with this process's numbers (`process_*`)."""
    made = CollectorRegistry()
    for collector in collectors:
        made.register(collector)
    ProcessCollector(registry=made)
    return made


def _by_type(name: str, documentation: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=["type"])
    for url in ORDER:
        family.add_metric([short(url)], counts[url])
    return family
