"""A model's directory in each of the forms that publishers use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from homing.control.templates.files import SourceError, from_directory, from_file, signature
from homing.core.template.source import ChatTemplate

TOKENS = {"bos_token": "<bos>", "eos_token": {"content": "<eos>", "lstrip": False}, "unk_token": None, "clean": True}
KNOWN = (("bos_token", "<bos>"), ("eos_token", "<eos>"))


def write(directory: Path, **files: object) -> Path:
    for name, content in files.items():
        path = directory / name.replace("__", "/").replace("_jinja", ".jinja").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def test_a_file_is_the_template(tmp_path: Path):
    path = tmp_path / "a.jinja"
    path.write_text("{{ messages }}")
    assert from_file(path) == ChatTemplate("{{ messages }}")


def test_the_text_in_the_tokenizers_configuration(tmp_path: Path):
    write(tmp_path, tokenizer_config_json={**TOKENS, "chat_template": "one"})
    assert from_directory(tmp_path) == ChatTemplate("one", None, KNOWN)


def test_a_list_of_templates_with_one_for_tools(tmp_path: Path):
    named = [
        {"name": "tool_use", "template": "two"},
        {"name": "default", "template": "one"},
        {"name": "rag", "template": "x"},
    ]
    write(tmp_path, tokenizer_config_json={**TOKENS, "chat_template": named})
    assert from_directory(tmp_path) == ChatTemplate("one", "two", KNOWN)


def test_the_file_of_its_own_rules_over_the_configuration(tmp_path: Path):
    write(tmp_path, tokenizer_config_json={**TOKENS, "chat_template": "old"}, chat_template_jinja="new")
    assert from_directory(tmp_path) == ChatTemplate("new", None, KNOWN)
    write(tmp_path, additional_chat_templates__tool_use_jinja="tools")
    assert from_directory(tmp_path) == ChatTemplate("new", "tools", KNOWN)


def test_a_processors_template(tmp_path: Path):
    write(tmp_path, tokenizer_config_json=TOKENS, chat_template_json={"chat_template": "seen"})
    assert from_directory(tmp_path) == ChatTemplate("seen", None, KNOWN)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "neither chat_template.jinja nor a chat_template in tokenizer_config.json"),
        ({"tokenizer_config_json": TOKENS}, "neither chat_template.jinja nor"),
        ({"tokenizer_config_json": "{"}, "tokenizer_config.json: Input data was truncated"),
        ({"tokenizer_config_json": {"chat_template": 5}}, "chat_template"),
        ({"tokenizer_config_json": {"chat_template": [{"name": "rag", "template": "x"}]}}, "none named default"),
        ({"chat_template_jinja": "x" * 1_000_001}, "more than 1000000 characters"),
    ],
)
def test_a_directory_without_a_template_says_what_is_missing(tmp_path: Path, files: dict[str, object], reason: str):
    with pytest.raises(SourceError, match=reason):
        from_directory(write(tmp_path, **files))


def test_what_cannot_be_read_says_why(tmp_path: Path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "huge").write_bytes(b"")
    os.truncate(tmp_path / "huge", (8 << 20) + 1)
    reasons = {"gone": "no such file", "latin": "not UTF-8", "huge": "more than 8388608 bytes", "a\0b": "embedded null"}
    for name, reason in reasons.items():
        with pytest.raises(SourceError, match=reason):
            from_file(tmp_path / name)
    with pytest.raises(SourceError, match="no such directory"):
        from_directory(tmp_path / "gone")


def test_the_signature_changes_with_the_file_and_with_those_in_the_directory(tmp_path: Path):
    seen = [signature(tmp_path)]
    write(tmp_path, tokenizer_config_json=TOKENS)
    seen.append(signature(tmp_path))
    write(tmp_path, chat_template_jinja="a")
    seen.append(signature(tmp_path))
    write(tmp_path, chat_template_jinja="ab")
    seen.append(signature(tmp_path))
    assert len(set(seen)) == 4
    assert signature(tmp_path) == seen[-1]
