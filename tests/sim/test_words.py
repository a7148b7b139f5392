import pytest

from homing.sim.tokenizer import ByteTokenizer, token_ids
from homing.sim.words import WordModel

tokenizer = ByteTokenizer()
model = WordModel(tokenizer, seed=7)


def answer(prompt, count, using=model, variant=b""):
    words = using.start(prompt, variant)
    return token_ids(words.take() for _ in range(count))


@pytest.mark.parametrize("prompt", ["<|im_start|>assistant\n", "once upon", "x y z\n"])
def test_an_answer_sent_back_is_cut_into_the_same_tokens(prompt):
    ids = tokenizer.encode(prompt)
    generated = answer(ids, 200)
    assert tokenizer.encode(prompt + tokenizer.decode(generated)) == ids + generated


def test_half_an_answer_as_prompt_is_continued_with_the_other_half():
    ids = tokenizer.encode("tell me")
    whole = answer(ids, 20)
    assert answer(ids + whole[:10], 10) == whole[10:]


def test_prompt_seed_and_variant_each_change_the_answer():
    ids = tokenizer.encode("tell me")
    base = answer(ids, 20)
    assert answer(ids, 20, WordModel(tokenizer, seed=7)) == base
    assert answer(ids, 20, WordModel(tokenizer, seed=8)) != base
    assert answer(ids, 20, variant=b"1") != base
    assert answer(tokenizer.encode("tell mf"), 20) != base


def test_the_likeliest_token_is_the_one_taken():
    words = model.start(tokenizer.encode("tell me"))
    for _ in range(5):
        top = words.top(5)
        assert len(set(top)) == 5
        assert words.take() == top[0]
