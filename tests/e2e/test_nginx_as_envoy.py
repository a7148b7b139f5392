"""Tests of Envoy's data plane that hold for NGINX with pickers, as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import test_affinity, test_requests, test_streams
from e2e.conftest import TWO_POOLS
from e2e.gateways import Gateway, gateway

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def two_pools(short_directory: Path) -> Iterator[Gateway]:
    with gateway("nginx", short_directory / "two", TWO_POOLS) as stack:
        yield stack


test_twenty_turns = test_affinity.test_each_turn_finds_what_the_last_left_in_the_cache
test_a_client_without_an_id = test_affinity.test_a_client_without_an_id_stays_home_for_twenty_turns
test_new_sessions = test_affinity.test_new_sessions_are_spread_by_load
test_close = test_requests.test_a_closed_session_is_forgotten
test_sagemakers_session = test_requests.test_sagemakers_session_from_its_request_to_its_close
test_sagemakers_header = test_requests.test_sagemakers_header_begins_a_session_with_a_turn
test_sagemakers_close = test_requests.test_sagemakers_close_that_names_no_session
test_other_request_types = test_requests.test_other_requests_with_a_request_type_are_nothing_special
test_8_mb = test_streams.test_a_body_of_8_mb_passes
test_65_mb = test_streams.test_a_body_over_64_mb_is_refused_in_openai_shape
test_openai_client = test_streams.test_the_unmodified_openai_client
