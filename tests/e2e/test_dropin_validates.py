"""The fragments in three strangers' configurations, as `envoy --mode validate` sees them: each, all, and none again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from e2e.dropin import DropIn, Pasted, read_envoy, read_fragments
from e2e.stack import replica_ids
from e2e.strangers_stack import PLAIN, STRICT_DNS, TLS, Stranger, validate, write_certificate

from homing.cli.main import main
from homing.control.envoy_config import stamp

pytestmark = pytest.mark.e2e

COMMON = ("listener", "http-connection-manager", "http-filters", "virtual-host", "route", "routes", "pickers")
LEFT_OVER = {
    "lb_subset_config": {"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["zone"]}]},
    "cluster_type": {"name": "envoy.clusters.logical_dns"},
    "eds_cluster_config": {"eds_config": {"ads": {}}},
}


@dataclass(frozen=True)
class Bench:
    """A stranger's file with its placeholders filled in, and the fragments for it."""

    stranger: Stranger
    text: str
    fragments: dict[str, Pasted]
    directory: Path

    def problems(self, *names: str) -> str:
        return validate(self.with_fragments(*names).text(), self.directory)

    def with_fragments(self, *names: str) -> DropIn:
        work = self.stranger.drop_in(self.text)
        for name in names:
            work.apply(self.fragments[name])
        return work


@pytest.fixture(params=[PLAIN, TLS, STRICT_DNS], ids=lambda stranger: stranger.file.removesuffix(".yaml"))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return bench_of(request.param, tmp_path)


def bench_of(stranger: Stranger, tmp_path: Path, *, isolated: bool = False) -> Bench:
    write_certificate(tmp_path)
    settings: dict[str, object] = {"isolation": {"cache_salt": "tenant"}} if isolated else {}
    names = [r for pool in stranger.pools for r in replica_ids(pool)]
    ports = {"listen": 18080, "admin": 19901, **{name: 18000 + i for i, name in enumerate(names)}}
    file = tmp_path / "homing.yaml"
    pools = {
        pool.id: {
            "served_name": pool.served_name,
            "hash": pool.hash,
            **settings,
            "replicas": [{"id": r, "address": f"{stranger.replica_host}:{ports[r]}"} for r in replica_ids(pool)],
        }
        for pool in stranger.pools
    }
    tenants = {"tenants": {"header": "x-tenant", "trusted": True}} if isolated else {}
    file.write_text(json.dumps({"pools": pools, **tenants}))
    wiring = ["--picker", "unix:/run/homing/picker.sock", "--standby", "unix:/run/homing/standby.sock"]
    result = CliRunner().invoke(main, ["render", "envoy", "-c", str(file), "--all-fragments", *wiring])
    assert result.exit_code == 0, result.output
    more = {"SHOP": 18100, "CERT": tmp_path / "cert.pem", "KEY": tmp_path / "key.pem"}
    return Bench(stranger, stranger.envoy(ports, tmp_path, **more), read_fragments(result.output), tmp_path)


def test_the_stranger_s_own_configuration_is_valid(bench: Bench) -> None:
    assert validate(bench.text, bench.directory) == ""


def test_every_fragment_is_there_once_with_its_stamp(bench: Bench) -> None:
    assert tuple(bench.fragments) == (*COMMON, *(f"cluster:{pool.id}" for pool in bench.stranger.pools))
    assert len({fragment.stamp for fragment in bench.fragments.values()}) == len(bench.fragments)


def test_each_fragment_alone_is_valid(bench: Bench) -> None:
    """So they may be pasted one by one, with Envoy checked after each."""
    assert {name: bench.problems(name) for name in bench.fragments} == dict.fromkeys(bench.fragments, "")


def test_the_minimal_set_is_valid(bench: Bench) -> None:
    assert bench.problems(*bench.stranger.minimal()) == ""


def test_pools_that_are_isolated_fail_closed_on_routes_of_your_own(tmp_path: Path) -> None:
    bench = bench_of(PLAIN, tmp_path, isolated=True)
    assert set(bench.fragments) == {*COMMON, "isolation", *(f"cluster:{pool.id}" for pool in PLAIN.pools)}
    for names in ((*PLAIN.minimal(), "isolation"), tuple(name for name in bench.fragments if name != "routes")):
        assert bench.problems(*names) == ""
        assert "failure_mode_allow: false" in bench.with_fragments(*names).text()


def test_all_fragments_are_valid_and_taken_out_in_any_order_leave_the_original(bench: Bench) -> None:
    names = tuple(bench.fragments)
    assert bench.problems(*names) == ""
    for order in (names[::-1], (*names[:4], "routes", "route", *names[6:])):
        work = bench.with_fragments(*names)
        assert work.envoy != read_envoy(bench.text)
        for name in order:
            work.remove(name)
        assert work.envoy == read_envoy(bench.text)
    assert validate(work.text(), bench.directory) == ""


def test_a_fragment_changes_nothing_but_the_serving_virtual_host_its_pools_and_homing_s_own(bench: Bench) -> None:
    work, original = bench.with_fragments(*bench.fragments), read_envoy(bench.text)
    changed = {*(pool.id for pool in bench.stranger.pools), "homing-pickers"}
    assert untouched_clusters(work.envoy, changed) == untouched_clusters(original, changed)
    assert other_hosts(work.envoy, bench.stranger) == other_hosts(original, bench.stranger)


def untouched_clusters(envoy: dict[str, object], changed: set[str]) -> list[object]:
    return [c for c in envoy["static_resources"]["clusters"] if c["name"] not in changed]  # type: ignore[index]


def other_hosts(envoy: dict[str, object], stranger: Stranger) -> list[object]:
    chain = envoy["static_resources"]["listeners"][0]["filter_chains"][0]  # type: ignore[index]
    hosts = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    return [host for host in hosts if host["name"] != stranger.virtual_host]


def test_what_the_comment_says_to_remove_envoy_refuses_if_it_stays(bench: Bench) -> None:
    work = bench.with_fragments(*bench.stranger.minimal())
    (cluster,) = (c for c in work.envoy["static_resources"]["clusters"] if c["name"] == bench.stranger.pools[0].id)
    for key, value in LEFT_OVER.items():
        cluster[key] = value
        assert validate(work.text(), bench.directory) != "", key
        del cluster[key]
    assert validate(work.text(), bench.directory) == ""


def test_the_stamp_follows_the_text() -> None:
    assert stamp("a: 1") == stamp("a: 1")
    assert stamp("a: 1") != stamp("a: 2")
