"""Which engines are asked, and what is read from them."""

from homing.cli.verify import engines
from homing.core.verify.observed import Counters

METRICS = """\
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 50.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0",num_gpu_blocks="1000"} 1.0
"""


def test_counters_are_of_all_ranks_together():
    assert engines.counters(METRICS) == Counters(150.0, 40.0, 7.0, 2.0, 16_000.0, 16, False, ranks=2)


def test_a_page_without_them_has_none():
    assert engines.counters("# TYPE up gauge\nup 1\n") == Counters()


def test_named_engines_go_by_host_and_port():
    assert engines.named(("http://10.0.0.1:8000/metrics", "10.0.0.2:8000", "https://b:8443/v1")) == {
        "10.0.0.1:8000": "http://10.0.0.1:8000",
        "10.0.0.2:8000": "http://10.0.0.2:8000",
        "b:8443": "https://b:8443",
    }


def test_engines_of_a_file_whose_control_service_is_away_are_those_in_the_file(tmp_path):
    file = tmp_path / "homing.yaml"
    file.write_text(
        "api: 127.0.0.1:1\n"
        "pools:\n"
        "  p: {served_name: m, aliases: [chat], replicas: [{id: a, address: '10.0.0.1:80'},"
        " {id: b, address: '10.0.0.2:80', dp_size: 2}]}\n"
        "  q: {replicas: [{id: c, address: '10.0.0.3:80'}]}\n"
    )
    of_p = {"a": "http://10.0.0.1:80", "b": "http://10.0.0.2:80"}
    assert engines.of_the_file(str(file), "m") == of_p
    assert engines.of_the_file(str(file), "chat") == of_p
    assert engines.of_the_file(str(file), "another") == {**of_p, "c": "http://10.0.0.3:80"}


def test_ranks_of_one_address_are_one_engine_by_its_address():
    pool = engines._Pool("m", [engines._Replica(f"a-{i}", "10.0.0.1:80") for i in range(2)])
    assert engines._of_pools([pool], "m") == {"10.0.0.1:80": "http://10.0.0.1:80"}


def test_a_gateway_elsewhere_is_not_looked_for_on_this_machine():
    assert engines.of_this_machine("http://gateway.example:8080", "m") == {}
