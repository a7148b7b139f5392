import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homing.sim.tokenizer import SPECIALS, ByteTokenizer

tokenizer = ByteTokenizer()


def pieces(text):
    return [tokenizer.token_bytes(t) for t in ByteTokenizer().encode(text)]


@given(st.text().filter(lambda text: "<|" not in text))
@example("a\0b  \n\t é 中 😀")
@example("x" * 1001)
def test_decoding_gives_the_text_back(text):
    assert tokenizer.decode(tokenizer.encode(text)) == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("the cat", [b"the", b" cat"]),
        ("a conversation", [b"a", b" con", b"vers", b"atio", b"n"]),
        ("a  b", [b"a", b" ", b" b"]),
        ("a \n", [b"a", b" ", b"\n"]),
        ("é中", ["é".encode(), "中".encode()]),
        (" é", [b" ", "é".encode()]),
        ("😀", [b"\xf0\x9f", b"\x98\x80"]),
        ("a\0", [b"a", b"\0"]),
        ("abcdefghi" * 4, [b"abcd", b"efgh", b"iabc", b"defg", b"hiab", b"cdef", b"ghia", b"bcde", b"fghi"]),
    ],
)
def test_text_is_cut_at_words_and_after_four_characters(text, expected):
    assert pieces(text) == expected


@given(st.lists(st.sampled_from(["the", " cat", "x" * 40, " " + "y" * 40, "\n", " ", "é"])).map("".join))
def test_a_long_word_is_cut_like_any_other(text):
    plain = [piece for word in [text] for piece in pieces(word)]
    assert all(len(piece) <= 4 for piece in plain)
    assert b"".join(plain) == text.encode()


@given(st.text())
def test_ids_stay_inside_the_vocabulary(text):
    assert all(0 <= t < tokenizer.vocab_size for t in tokenizer.encode(text))


def test_special_tokens_are_one_id_each_and_decode_to_nothing():
    ids = tokenizer.encode("".join(SPECIALS))
    assert len(ids) == len(set(ids)) == len(SPECIALS)
    assert tokenizer.decode(ids) == ""
    assert [tokenizer.token_text(t) for t in ids] == list(SPECIALS)


def test_every_instance_gives_the_same_ids():
    assert ByteTokenizer().encode("hello <|im_start|> world") == ByteTokenizer().encode("hello <|im_start|> world")


def test_special_tokens_are_in_the_text_when_asked_for():
    ids = tokenizer.encode("<|im_start|>hello")
    assert tokenizer.decode(ids) == "hello"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>hello"
