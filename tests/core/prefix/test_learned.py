from array import array

import pytest

from homing.core.prefix import learned
from homing.core.prefix.learned import LearnedPrompts
from homing.core.prefix.prompt import Prompt

SYSTEM_AND_A = Prompt((1, 2), (900, 1000))
SYSTEM_AND_B = Prompt((1, 3), (900, 1000))


def chains(count: int, first: int = 0) -> dict[int, "array[int]"]:
    return {16: array("Q", range(first, first + count))}


def test_a_prompt_with_the_same_leading_messages_has_their_share_of_the_blocks():
    prompts = LearnedPrompts()
    prompts.learn(SYSTEM_AND_A, chains(50), 800)  # the estimate was 1,000
    assert (prompts.depth(SYSTEM_AND_A), prompts.depth(SYSTEM_AND_B), prompts.depth(Prompt((9,), (10,)))) == (2, 1, 0)
    assert prompts.beginning(SYSTEM_AND_A, 2).blocks(16) == 50
    assert prompts.beginning(SYSTEM_AND_B, 1).blocks(16) == 45
    assert prompts.beginning(SYSTEM_AND_B, 1).blocks(128) == 0


def test_an_empty_prompt_teaches_nothing():
    prompts = LearnedPrompts()
    prompts.learn(Prompt((), ()), chains(1), 16)
    assert len(prompts) == 0


def test_a_prompt_learned_again_replaces_what_was_known():
    prompts = LearnedPrompts()
    prompts.learn(SYSTEM_AND_A, chains(50), 800)
    prompts.learn(SYSTEM_AND_A, chains(60, first=7), 1000)
    assert len(prompts) == 1
    assert prompts.beginning(SYSTEM_AND_A, 2).chains[16][0] == 7


def test_the_longest_unused_prompt_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learned, "MAX_NAMES", 100)
    prompts = LearnedPrompts()
    a, b, c = (Prompt((n, 10 * n), (500, 1000)) for n in (1, 2, 3))
    prompts.learn(a, chains(50), 1000)
    prompts.learn(b, chains(50), 1000)
    prompts.beginning(a, 1)
    prompts.learn(c, chains(50), 1000)
    assert [prompts.depth(p) for p in (a, b, c)] == [2, 0, 2]


def test_what_prompts_share_survives_with_the_latest_of_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learned, "MAX_PROMPTS", 1)
    prompts = LearnedPrompts()
    prompts.learn(SYSTEM_AND_A, chains(50), 800)
    prompts.learn(SYSTEM_AND_B, chains(50), 800)
    assert (prompts.depth(SYSTEM_AND_A), prompts.depth(SYSTEM_AND_B)) == (1, 2)


def test_one_prompt_is_kept_however_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learned, "MAX_NAMES", 10)
    prompts = LearnedPrompts()
    prompts.learn(SYSTEM_AND_A, chains(50), 800)
    assert prompts.depth(SYSTEM_AND_A) == 2
