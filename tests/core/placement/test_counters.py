"""An engine's counters, out of the text that it serves."""

from __future__ import annotations

import pytest

from homing.core.placement.counters import Counters, read

TEXT = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting_by_reason{engine="1",reason="capacity"} 5.0
vllm:prefix_cache_queries_total{engine="0",model_name="m}"} 1.5e+06
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1.0e+06
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
"""


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (None, Counters(4, 7, 1.5e6, 1e6, 16_000)),
        (0, Counters(3, 2, 1.5e6, 1e6, 16_000)),
        (1, Counters(1, 5, 0, 0, None)),
    ],
)
def test_an_address_or_one_of_its_ranks(rank: int | None, expected: Counters):
    assert read(TEXT, rank) == expected


@pytest.mark.parametrize("text", [b"", b"<html>", b"vllm:other 1\n", b"vllm:num_requests_waiting{ e.e\n"])
def test_text_without_them_is_nothing(text: bytes):
    assert read(text) is None


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (None, (0, 0)),
        (Counters(queried=100, found=40), (50, 10)),
        (Counters(queried=900, found=800), (150, 50)),  # it has restarted
    ],
)
def test_what_came_since(before: Counters | None, expected: tuple[float, float]):
    assert Counters(queried=150, found=50).since(before) == expected
