"""What homing changes in a body, and that it changes nothing else."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.chat import NotAnObjectError, model_of, with_model

DEEP = b"[" * 100_000 + b"]" * 100_000

VALUES = [
    b"1.0", b"1e400", b"-0.0", b"1E+2", b"0.1000", b"123456789012345678901234567890", b"-9007199254740993",
    rb'"\u00e9"', rb'"\/"', rb'"\ud83d\ude00"', '"é☃😀"'.encode(), rb'"\"model\":\"x\""', b'"model"',
    b"true", b"null", b"[]", b"{}", b"[ 1 , 2.50,\n 3 ]", b'{ "model" : "inner", "a":1,"a": 2 }',
    b'[{"role":"user","content":"x", "model":"inner"}]',
]  # fmt: skip

NOT_OBJECTS = [
    b"", b" ", b"[]", b"null", b'"model"', b"1", b"hello", b'{"model":"x"', b'{"model" "x"}', b'{"model":"x"}}',
    b"{'model':'x'}", b'{"model":"x",}', b'{"a":01}', b'{"a":"\x01"}', b'{"\xff":1}', b"\xff\xfe{}", b"\xef\xbb\xbf{}",
    b'{"model":"x","messages":' + DEEP + b"}",
]  # fmt: skip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("value", VALUES)
def test_every_other_value_stays_byte_for_byte(value: bytes):
    body = b'{"first":' + value + b',"model":"alias","last":' + value + b"}"
    assert with_model(body, "served") == body.replace(b'"alias"', b'"served"')


def test_only_the_spaces_between_members_go():
    body = b' {\n "messages" : [ {"role" : "user"} ] , "model"\t:"alias" ,"n": 1 }\r\n'
    assert with_model(body, "served") == b'{"messages":[ {"role" : "user"} ],"model":"served","n":1}'


def test_a_body_without_a_model_gets_one():
    assert with_model(b"{}", "served") == b'{"model":"served"}'
    assert with_model(b'{"prompt":"x"}', "served") == b'{"prompt":"x","model":"served"}'


@pytest.mark.parametrize("old", [b"null", b"5", b'{"a":1}', rb'"\u0061lias"'])
def test_the_model_is_replaced_whatever_it_was(old: bytes):
    assert with_model(b'{"model":' + old + b',"n":1}', "served") == b'{"model":"served","n":1}'


def test_of_duplicate_members_the_last_stays_where_the_first_was_as_python_reads_them():
    body = b'{"model":"one","n":1,"n":2,"model":"two","x":{"y":1,"y":2}}'
    assert with_model(body, "served") == b'{"model":"served","n":2,"x":{"y":1,"y":2}}'
    assert list(json.loads(body)) == ["model", "n", "x"]


def test_escaped_names_of_members_mean_what_they_mean():
    assert model_of(rb'{"mod\u0065l":"x"}') == "x"
    assert with_model(rb'{"mod\u0065l":"x","\u00e9":1}', "y") == '{"model":"y","é":1}'.encode()


def test_bytes_that_are_no_utf_8_stay_in_the_values_of_others():
    assert with_model(b'{"prompt":"\xff","model":"a"}', "b") == b'{"prompt":"\xff","model":"b"}'


@given(
    st.dictionaries(st.text(max_size=8), json_values, max_size=6), st.text(max_size=20), st.booleans(), st.booleans()
)
def test_to_a_parser_nothing_else_changes(members: dict[str, object], model: str, ascii_only: bool, spaced: bool):
    body = json.dumps(members, ensure_ascii=ascii_only, indent=1 if spaced else None).encode()
    changed = with_model(body, model)
    assert json.loads(changed) == members | {"model": model}
    assert list(json.loads(changed)) == list(members | {"model": model})
    assert model_of(changed) == model
    assert with_model(changed, model) == changed


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"m","messages":[]}', "m"),
        (b'{"messages":[{"model":"inner"}],"model":"m"}', "m"),
        (b'{"model":"one","model":"two"}', "two"),
        (rb'{"model":"\u00e9"}', "é"),
        (b'{"messages":[]}', None),
        (b'{"metadata":{"model":"inner"}}', None),
        (b'{"model":null}', None),
        (b'{"model":5}', None),
        (b'{"model":["m"]}', None),
        (b'{"model":"\xff"}', None),
        (b"{}", None),
    ],
)
def test_the_model_a_body_names(body: bytes, model: str | None):
    assert model_of(body) == model


@pytest.mark.parametrize("body", NOT_OBJECTS, ids=lambda body: repr(body[:25]))
def test_what_is_no_object_is_told_and_nothing_else_is_raised(body: bytes):
    with pytest.raises(NotAnObjectError):
        model_of(body)
    with pytest.raises(NotAnObjectError):
        with_model(body, "m")


tokens = st.sampled_from(
    [b"{", b"}", b"[", b"]", b":", b",", b'"model"', b'"', b"\\", b"\\ud800", b"1", b" ", b"\xff", b"a"]
)


@given(st.lists(tokens, max_size=12).map(b"".join) | st.binary(max_size=12).map(b'{"model":%s}'.__mod__))
def test_any_bytes_give_an_answer_or_that_error(body: bytes):
    for read in (model_of, lambda data: with_model(data, "m")):
        with contextlib.suppress(NotAnObjectError):
            read(body)
