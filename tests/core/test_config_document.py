"""Files that are no configuration at all, and files made to hurt."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from homing.core.config import MAX_FILE_BYTES, ConfigError, Problem, parse
from homing.core.config.document import Mapping, compose, fastest_loader, resolved

POOL = "pools: {a: {replicas: [{id: r, address: 'h:1'}]}}"
LOADERS = [yaml.SafeLoader, fastest_loader()]


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return [str(p) for p in caught.value.problems]


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(text):
    assert problems(text) == ["f:1: found an empty file, allowed: a mapping with the key pools"]


@pytest.mark.parametrize(
    ("text", "found"), [("- a\n- b", "a list of 2"), ("pools", '"pools"'), ("--- ~", "nothing"), ("3", "3")]
)
def test_anything_but_a_mapping_at_the_top_is_refused(text, found):
    assert problems(text) == [f"f:1: found {found}, allowed: a mapping with the key pools"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [", 2), ("a: b: c", 1), ("a:\n\t- b", 2), ("a: 'b", 1), ("x: 1\n]", 2), ('"\\UFFFFFFFF"', 1), ("a: @b", 1)],
)
def test_bad_syntax_is_told_with_its_line(text, line):
    (only,) = problems(text)
    assert only.startswith(f"f:{line}: found YAML that does not parse (")
    assert only.endswith("), allowed: valid YAML")


def test_bytes_that_are_not_utf_8_are_told_with_their_line():
    assert problems(b"# ok\na: \xff\xfe") == ["f:2: found the byte 0xff, allowed: UTF-8 text"]


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ud800", "\ufffe"])
def test_unprintable_text_is_refused(character):
    (only,) = problems(f"# ok\na: {character}")
    assert only == f'f:2: found the character "\\u{ord(character):04x}", allowed: printable text'


@pytest.mark.parametrize("text", [b"#" * (MAX_FILE_BYTES + 1), "#" * (MAX_FILE_BYTES + 1)])
def test_a_file_of_more_than_a_mebibyte_is_refused(text):
    assert problems(text) == ["f:1: found more than 1048576 bytes, allowed: up to 1048576 bytes"]


def test_a_key_that_stands_twice_is_told_with_both_lines():
    assert problems(f"{POOL}\napi: 127.0.0.1:1\napi: 127.0.0.1:2") == [
        "f:3: api: found the key again (first on line 2), allowed: each key once"
    ]
    assert problems("pools:\n  a: {replicas: [{id: r, address: 'h:1'}]}\n  a: {}") == [
        "f:3: pools.a: found the key again (first on line 2), allowed: each key once"
    ]


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("pools: &p {a: *p}", "pools.a", "p"),
        ("pools: {a: &a {replicas: [*a]}}", "pools.a.replicas[0]", "a"),
        ("&top\npools: {a: {replicas: *top}}", "pools.a.replicas", "top"),
    ],
)
def test_a_cycle_is_told_once(text, key, name):
    (only,) = problems(text)
    found = f'found a cycle (the alias "{name}" stands within its anchor), allowed: no cycles'
    assert only == f"f:{text.count(chr(10)) + 1}: {key}: {found}"


def test_an_alias_of_no_anchor_is_refused():
    assert problems("pools: *later\nhealth: &later {}") == [
        'f:1: pools: found the alias "later" of no anchor above, allowed: aliases of anchors above'
    ]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!str", "!own"])
def test_a_tag_is_refused(tag):
    (only,) = problems(f"expose_decisions: {tag} 'true'\n{POOL}")[:1]
    assert only.startswith("f:1: expose_decisions: found the tag ")
    assert only.endswith("allowed: values without tags")


def test_a_second_document_is_refused():
    assert problems(f"{POOL}\n---\n{POOL}") == ["f:2: found a second YAML document, allowed: one document in a file"]


def test_a_key_that_is_no_text_is_refused():
    assert problems(f"{POOL}\n? [a]\n: 1\n") == ["f:2: found a list of 1 as a key, allowed: text as a key"]


def test_a_merge_key_is_an_unknown_key():
    assert [p.split(", allowed")[0] for p in problems(f'{POOL}\n"<<": {{}}')] == ['f:2: "<<": found an unknown key']


@pytest.mark.parametrize("loader", LOADERS)
def test_aliases_of_aliases_do_not_grow_without_bound(loader):
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(ConfigError) as caught:
        compose("\n".join(lines), "f", loader)
    allowed = "at most 200000 values, those behind aliases counted each time"
    assert caught.value.problems == (Problem("f", 5, "e", "more values than a configuration has", allowed),)


def test_aliases_of_aliases_do_not_nest_without_bound():
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 5000)]
    assert problems("\n".join(lines)) == ["f:20: a19[0]: found nesting deeper than 20, allowed: at most 20 levels"]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a [", "[? "])
def test_deep_nesting_is_refused_before_it_costs_a_stack(loader, opening):
    with pytest.raises(ConfigError) as caught:
        compose(opening * 50_000, "f", loader)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("loader", LOADERS)
def test_every_node_knows_its_line(loader):
    root, found = compose("a:\n  b: [1,\n    2]\n  c: |\n    text\nd: x\n", "f", loader)
    assert found == ()
    assert isinstance(root, Mapping)
    a_line, a = root.entries["a"]
    assert isinstance(a, Mapping)
    b_line, b = a.entries["b"]
    assert (a_line, b_line, [n.line for n in b.items], a.entries["c"][0], root.entries["d"][0]) == (1, 2, [2, 3], 4, 6)
    assert root.plain() == {"a": {"b": [1, 2], "c": "text\n"}, "d": "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("FALSE", False), ("yes", "yes"), ("off", "off"),
        ("0", 0), ("-7", -7), ("+7", 7), ("007", 7), ("1_000", "1_000"), ("0x10", "0x10"), ("1:30", "1:30"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.e3", 1000.0), (".", "."), ("-", "-"), ("1e", "1e"),
        ("-.inf", float("-inf")), (".Inf", float("inf")), ("inf", "inf"), ("nan", "nan"), ("٣", "٣"),
        ("1" * 33, "1" * 33),
    ],
)  # fmt: skip
def test_plain_scalars_are_those_of_yaml_1_2(text, value):
    assert (resolved(text), type(resolved(text))) == (value, type(value))


def test_nan_is_read():
    assert str(resolved(".nan")) == "nan"


def test_libyaml_is_used_where_it_is_there():
    assert fastest_loader() is (yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)


TOKENS = st.sampled_from(
    [
        "pools", "a", "replicas", "id", "address", "h:1", "sessions", "headers", "x-session-id", "tenants", "listen",
        "127.0.0.1:8080", "health", ": ", ":", "\n", "\n  ", "\n    ", "- ", ", ", "[", "]", "{", "}", "&a ", "*a",
        "? ", "|\n", ">", "!", "!!str ", "!<", "%", "---\n", "...\n", "#", '"', "'", "\\", "\\U", "FFFFFFFF", "true",
        ".nan", "1", "-", "~", "<<", "\t", "\r", "\u2028", "\x85", "é", "[key]",
    ]
)  # fmt: skip
PATCHES = st.lists(TOKENS, max_size=4).map("".join)
DOCUMENTS = st.lists(TOKENS, max_size=60).map("".join)


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    """Empty when `text` is a configuration. What is neither a Config nor a ConfigError passes through."""
    try:
        parse(text, "f")
    except ConfigError as e:
        return e.problems
    return ()


@given(st.one_of(st.text(), st.binary(), DOCUMENTS))
def test_any_text_is_a_config_or_a_config_error_of_one_line_a_problem(text):
    assert [str(p) for p in problems_of(text) if len(str(p).splitlines()) != 1] == []


@given(st.integers(0, 150), st.integers(0, 4), PATCHES)
def test_a_damaged_file_is_a_config_or_a_config_error(at, removed, put):
    whole = f"{POOL}\nsessions: {{headers: [x-a], ttl_s: 5}}\ntenants: {{header: x-t}}\n"
    assert problems_of(whole) == ()
    found = problems_of(whole[:at] + put + whole[at + removed :])
    assert [p for p in found if not p.found or not p.allowed] == []


@given(st.one_of(st.text(), DOCUMENTS))
def test_without_libyaml_any_text_is_a_tree_or_a_config_error(text):
    try:
        root, _ = compose(text, "f", yaml.SafeLoader)
    except ConfigError:
        return
    assert root.line >= 1
