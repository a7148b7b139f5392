import pytest

from homing.sim.chat_template import ChatTemplate, RenderOptions
from homing.sim.errors import BadRequestError

USER = {"role": "user", "content": "hi"}


def test_the_default_is_chatml():
    text = ChatTemplate().render([{"role": "system", "content": "be kind"}, USER], RenderOptions())
    assert text == ("<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_a_turn_keeps_the_text_of_the_turn_before():
    template = ChatTemplate()
    first = template.render([USER], RenderOptions())
    second = template.render([USER, {"role": "assistant", "content": "yes"}, USER], RenderOptions())
    assert second.startswith(first + "yes<|im_end|>\n")


def test_text_parts_are_joined_by_line_breaks():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    text = ChatTemplate().render([{"role": "user", "content": parts}], RenderOptions(add_generation_prompt=False))
    assert text == "<|im_start|>user\na\nb<|im_end|>\n"


def test_tool_calls_are_part_of_the_prompt():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert '{"name": "f", "arguments": {"a": 1}}' in ChatTemplate().render([message], RenderOptions())


def test_developers_messages_become_one_system_message_with_all_others():
    messages = [{"role": "developer", "content": "d"}, USER, {"role": "system", "content": "s"}]
    text = ChatTemplate().render(messages, RenderOptions(add_generation_prompt=False))
    assert text == "<|im_start|>system\nd\n\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"


def test_a_template_that_knows_developers_gets_their_messages():
    source = "{% for m in messages %}{% if m.role == 'developer' %}!{% endif %}{{ m.content }}{% endfor %}"
    messages = [{"role": "developer", "content": "d"}, USER, {"role": "system", "content": "s"}]
    assert ChatTemplate(source).render(messages, RenderOptions()) == "!dhis"


def test_the_final_message_is_continued():
    options = RenderOptions(add_generation_prompt=False, continue_final_message=True)
    text = ChatTemplate().render([USER, {"role": "assistant", "content": "Once upon"}], options)
    assert text.endswith("<|im_start|>assistant\nOnce upon")


@pytest.mark.parametrize(("filter_", "end"), [("", "Once upon "), (" | trim", "Once upon")])
def test_the_space_at_its_end_stays_unless_the_template_trims_it(filter_, end):
    options = RenderOptions(add_generation_prompt=False, continue_final_message=True)
    template = ChatTemplate("{% for m in messages %}[{{ m.content" + filter_ + " }}]{% endfor %}")
    assert template.render([USER, {"role": "assistant", "content": "Once upon "}], options).endswith("[" + end)


def test_a_final_message_without_text_is_begun():
    options = RenderOptions(add_generation_prompt=False, continue_final_message=True)
    text = ChatTemplate().render([USER, {"role": "assistant", "content": None}], options)
    assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("source", "message", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", USER, "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", USER, "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ messages[5].role }}", USER, "list object has no element 5"),
        ("{{ 1 // 0 }}", USER, "integer division or modulo by zero"),
        ("", {"content": "x"}, "Each message needs a `role`."),
        ("", {"role": "user", "content": [{"type": "image_url"}]}, "Unknown part type: image_url"),
        ("", {"role": "user", "content": 5}, "`content` must be text or a list of parts."),
    ],
)
def test_what_a_template_cannot_do_is_the_clients_mistake(source, message, words):
    with pytest.raises(BadRequestError, match=words.replace("`", ".").replace("(", ".")):
        ChatTemplate(source).render([message], RenderOptions())
