from homing.core.history import read
from homing.core.prefix.prompt import MAX_MARKS, SLICE_BYTES, Marking, Prompt


def prompt(*messages: tuple[str, str], seed: bytes = b"seed") -> Prompt:
    marking = Marking(seed)
    for role, text in messages:
        marking.add(role, text.encode("utf-8", "surrogatepass"))
    return marking.prompt()


def same(a: Prompt, b: Prompt) -> int:
    """How many leading marks are the same; none is the same behind the first that differs."""
    equal = [x == y for x, y in zip(a.marks, b.marks, strict=False)]
    count = equal.index(False) if False in equal else len(equal)
    assert not any(equal[count:])
    return count


def test_each_message_ends_with_a_mark_and_tokens_are_a_quarter_of_the_bytes():
    made = prompt(("system", "s" * 399), ("user", "u" * 40))
    assert made.tokens == (100, 111)
    assert made.total == 111
    assert len(set(made.marks)) == 2


def test_prompts_share_the_marks_of_their_common_beginning():
    system = ("system", "You are a helper.")
    assert same(prompt(system, ("user", "a")), prompt(system, ("user", "b"))) == 1
    assert same(prompt(system, ("user", "a")), prompt(("developer", system[1]), ("user", "a"))) == 0
    assert same(prompt(system), prompt(system, seed=b"other tenant")) == 0


def test_long_messages_are_marked_inside():
    text = "x" * (3 * SLICE_BYTES)
    a, b = prompt(("system", text + "Alice")), prompt(("system", text + "Bob"))
    assert a.tokens == (1024, 2048, 3072, 3074)
    assert same(a, b) == 3


def test_a_text_in_another_message_is_another_prompt():
    assert same(prompt(("user", "ab")), prompt(("user", "a"), ("user", "b"))) == 0


def test_only_the_beginning_of_a_very_long_prompt_is_marked():
    assert len(prompt(*[("user", "hello")] * 600).marks) == MAX_MARKS
    long = prompt(("user", "x" * (600 * SLICE_BYTES)))
    assert len(long.marks) == MAX_MARKS
    assert same(long, prompt(("user", "x" * (700 * SLICE_BYTES)))) == MAX_MARKS - 1


def test_odd_text_is_text_all_the_same():
    assert prompt(("user", "\ud800")).total == 1


def test_a_body_is_marked_in_the_order_of_templates():
    tools = b'[{"type": "function"}]'
    body = b'{"messages": [{"role": "user", "content": "hi"}], "system": "be kind", "tools": %s}' % tools
    expected = prompt(("tools", tools.decode()), ("system", "be kind"), ("user", "hi"))
    assert read(body, (), b"seed").prompt == expected


def test_parts_of_text_and_checksums_make_no_difference():
    plain = b'{"messages": [{"role": "system", "content": "x cch=00ff"}, {"role": "user", "content": "hi"}]}'
    parts = (
        b'{"messages": [{"role": "system", "content": [{"type": "text", "text": "x cch=11aa", "cache_control": {}}]},'
        b' {"role": "user", "content": [{"type": "text", "text": "hi"}]}]}'
    )
    assert read(plain, (), b"s").prompt == read(parts, (), b"s").prompt != None  # noqa: E711


def test_a_body_without_messages_has_no_prompt():
    assert read(b'{"messages": []}', (), b"s").prompt is None
