import json

import httpx
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from homing.sim.file_tokenizer import FileTokenizer, read_model_files

CORPUS = ["once upon a time there was a replica", "the time of the replica was upon us", "é 中 😀"] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model's directory with a small byte-level BPE tokenizer that begins every text with a BOS."""
    directory = tmp_path_factory.mktemp("model")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<end>"]
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"content": "<end>"}, "chat_template": "ignored"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    (directory / "chat_template.jinja").write_text(template)
    return directory


@pytest.fixture(scope="module")
def tokenizer(model):
    return FileTokenizer(model)


@given(text=st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<" not in text))
def test_the_bytes_of_the_tokens_are_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_added_where_asked_and_have_no_text(tokenizer):
    plain = tokenizer.encode("once<end>")
    assert list(tokenizer.encode("once<end>", add_special_tokens=True)) == [0, *plain]
    assert tokenizer.token_bytes(plain[-1]) == b""
    assert tokenizer.token_text(plain[-1]) == "<end>"
    assert tokenizer.decode(plain) == "once"


def test_a_lone_file_is_enough(model, tokenizer):
    assert FileTokenizer(model / "tokenizer.json").encode("once upon") == tokenizer.encode("once upon")
    assert read_model_files(model / "tokenizer.json").special_tokens == {}


def test_the_files_beside_it_give_special_tokens_and_template(model):
    files = read_model_files(model)
    assert files.special_tokens == {"bos_token": "<s>", "eos_token": "<end>"}
    assert files.chat_template is not None
    assert files.chat_template.startswith("{{ bos_token }}")


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        FileTokenizer(tmp_path)


def test_a_replica_speaks_it(start_sim, model, tokenizer):
    sim = start_sim("--tokenizer", str(model), "--itl-ms", "0", "--block-size", "4")

    def post(path, **fields):
        return httpx.post(sim.url + path, json=fields).json()

    messages = [{"role": "user", "content": "once upon a time"}]
    rendered = "<s>user: once upon a time<end>"
    assert post("/tokenize", messages=messages)["tokens"] == list(tokenizer.encode(rendered))
    assert post("/tokenize", prompt="once")["tokens"] == list(tokenizer.encode("once", add_special_tokens=True))
    chat = post("/v1/chat/completions", messages=messages, max_tokens=8, return_token_ids=True)
    (choice,) = chat["choices"]
    assert tokenizer.decode(choice["token_ids"]) == choice["message"]["content"]
    ids = chat["prompt_token_ids"] + choice["token_ids"]
    again = post("/v1/completions", prompt=ids, max_tokens=1)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == (len(ids) - 1) // 4 * 4
    assert "out of vocabulary" in post("/v1/completions", prompt=[400])["error"]["message"]
