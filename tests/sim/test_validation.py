"""The words are those that a real vLLM 0.32 gave (docs/calibration.md)."""

import msgspec
import pytest

from homing.sim.errors import MalformedError
from homing.sim.requests import ChatRequest, parse

CASES = [
    (b"", "'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'"),
    (
        b'{"messages": [{"role": "user"',
        "'json_invalid', 'loc': 'body.29', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', "
        "'ctx': {'error': \"Expecting ',' delimiter\"}",
    ),
    (
        b"[1, 2]",
        "'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary or object to extract "
        "fields from', 'input': '<list of 2 items>'",
    ),
    (b'{"model": "m"}', "'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'"),
    (
        b'{"messages": [], "max_tokens": "many"}',
        "'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as "
        "an integer', 'input': 'many'",
    ),
    (
        b'{"messages": [], "max_tokens": 1.5}',
        "'int_from_float', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, got a number with a "
        "fractional part', 'input': '1.5'",
    ),
]


@pytest.mark.parametrize(("body", "problem"), CASES)
def test_what_is_wrong_is_said_in_vllms_words(body, problem):
    with pytest.raises(MalformedError) as caught:
        parse(body, ChatRequest)
    assert str(caught.value) == f"1 validation error:\n  {{'type': {problem}}}"


def test_each_type_that_would_do_is_a_problem_of_its_own():
    with pytest.raises(MalformedError) as caught:
        parse(b'{"messages": [], "stop": 7}', ChatRequest)
    assert str(caught.value) == (
        "2 validation errors:\n"
        "  {'type': 'string_type', 'loc': 'body.stop', 'msg': 'Input should be a valid string', 'input': '7'}\n"
        "  {'type': 'list_type', 'loc': 'body.stop', 'msg': 'Input should be a valid list', 'input': '7'}"
    )
    assert caught.value.param == "body.stop"


def test_a_long_value_is_shown_in_part():
    body = msgspec.json.encode({"messages": [], "n": "x" * 300})
    with pytest.raises(MalformedError, match=r"x{200}\.\.\.\[truncated\]'}"):
        parse(body, ChatRequest)


def test_a_number_may_come_as_text():
    assert parse(b'{"messages": [], "max_tokens": "5"}', ChatRequest).max_tokens == 5
