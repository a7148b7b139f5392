import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.sim.detokenizer import TextStream
from homing.sim.tokenizer import ByteTokenizer

tokenizer = ByteTokenizer()


def stream(text, stops=()):
    """The parts that come out when the tokens of `text` go in one by one."""
    out = TextStream(tokenizer, stops)
    parts = [out.push([token]) for token in tokenizer.encode(text)]
    parts.append(out.push([], last=True))
    return parts, out.stopped


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<|" not in text))
def test_the_parts_are_the_text(text):
    assert "".join(stream(text)[0]) == text


def test_a_character_split_over_tokens_comes_when_it_is_whole():
    assert stream("a😀b")[0] == ["a", "", "😀", "b", ""]


@pytest.mark.parametrize(
    ("text", "stops", "expected", "stopped"),
    [
        ("one two three", (" two",), "one", " two"),
        ("one two three", ("o thr",), "one tw", "o thr"),
        ("one two three", ("three",), "one two ", "three"),
        ("one two three", ("four",), "one two three", None),
        ("one two three", ("two", "one"), "", "one"),
    ],
)
def test_text_ends_before_the_first_stop_string(text, stops, expected, stopped):
    parts, met = stream(text, stops)
    assert ("".join(parts), met) == (expected, stopped)
