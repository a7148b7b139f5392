import math

import pytest

from homing.sim.logprobs import Guess
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


def test_the_token_that_is_taken_is_the_likeliest_guess():
    words = model.start(tokenizer.encode("tell me"), keep=5)
    taken = [words.take() for _ in range(5)]
    assert [guess.tokens[0] for guess in words.guesses] == taken
    for guess in words.guesses:
        assert len(set(guess.tokens)) == 5
        assert sum(map(math.exp, guess.logprobs)) <= 1


def test_the_first_guess_of_a_sure_one_is_above_the_second():
    sure, unsure = Guess.of([1, 2, 3], (1 << 64) - 1), Guess.of([1, 2, 3], 0)
    assert [round(math.exp(p), 4) for p in sure.logprobs] == [0.95, 0.015, 0.0105]
    assert [round(math.exp(p), 4) for p in unsure.logprobs] == [0.3, 0.21, 0.147]


def test_nothing_is_remembered_unless_asked():
    words = model.start(tokenizer.encode("tell me"))
    words.take()
    assert words.guesses == []


def test_allowed_tokens_are_the_only_ones():
    words = WordModel(ByteTokenizer()).start(token_ids([1, 2]), allowed=(77,))
    assert [words.take() for _ in range(4)] == [77] * 4
