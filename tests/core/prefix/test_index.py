from array import array

from homing.core.placement.prefix import NoPrefixes, PrefixIndex
from homing.core.prefix.blocks import chain
from homing.core.prefix.events import Stored
from homing.core.prefix.index import SETTLED_S, Index
from homing.core.prefix.prompt import Prompt

ASKED = Prompt((1, 2, 3), (100, 200, 300))


def test_held_is_told_in_tokens_for_each_replica_of_the_pool():
    index: PrefixIndex = Index()
    index.placed("m", "a", ASKED, 0.0)
    index.placed("m", "b", Prompt((1, 2), (100, 200)), 0.0)
    index.placed("other", "c", ASKED, 0.0)
    assert index.held("m", ASKED, 1.0) == {"a": 300, "b": 200}
    assert index.held("unknown", ASKED, 1.0) == {}


def test_a_replica_that_restarted_under_its_old_id_is_cold():
    index = Index()
    index.placed("m", "a", ASKED, 0.0)
    index.forget(("m", "a"))
    index.forget(("unknown", "a"))
    assert index.held("m", ASKED, 1.0) == {}


def test_a_cache_holds_what_its_engine_says_that_fits():
    index = Index()
    index.resize(("m", "a"), 200)
    index.placed("m", "a", ASKED, 0.0)
    assert index.held("m", ASKED, 1.0) == {"a": 200}


def test_pools_that_are_gone_are_forgotten():
    index = Index()
    for pool in ("m", "n"):
        index.placed(pool, "a", ASKED, 0.0)
    index.keep(["n", "new"])
    assert (index.held("m", ASKED, 0.0), index.held("n", ASKED, 0.0)) == ({}, {"a": 300})


def test_without_an_index_nobody_holds_anything():
    index: PrefixIndex = NoPrefixes()
    index.placed("m", "a", ASKED, 0.0)
    assert index.held("m", ASKED, 0.0) == {}


# What the engines say. Blocks of 10 tokens; the prompt of 300 estimated tokens has 600.

IDS = list(range(600))


def learn(index: Index, prompt: Prompt, count: int = 600, salt: bytes = b"") -> None:
    chains = {10: array("Q", chain(IDS[:count], 10, salt))}
    index.pool("m").learned.learn(prompt, chains, count)


def informed(*, complete: bool = True) -> Index:
    """Replica a has said that it holds the whole prompt, b the first half; and which blocks it is was learned."""
    index = Index()
    blocks = index.pool("m").blocks
    for replica, count in (("a", 60), ("b", 30), ("c", 0)):
        blocks.begin(replica, complete=complete)
        blocks.apply(replica, Stored(range(count), None, IDS[: 10 * count], 10))
    learn(index, ASKED)
    return index


def test_what_engines_say_is_told_on_the_prompts_own_scale():
    assert informed().held("m", ASKED, 0.0) == {"a": 300, "b": 150}
    assert informed().held("m", Prompt((1, 2, 9), (100, 200, 400)), 0.0) == {"a": 200, "b": 150}


def test_an_engine_that_dropped_a_prompt_is_believed_once_its_blocks_must_have_come():
    index = informed()
    index.placed("m", "c", ASKED, 0.0)
    assert index.held("m", ASKED, SETTLED_S - 1) == {"a": 300, "b": 150, "c": 300}
    assert index.held("m", ASKED, SETTLED_S) == {"a": 300, "b": 150}


def test_an_engine_of_which_not_all_is_known_is_taken_to_hold_what_it_was_sent():
    index = informed(complete=False)
    index.placed("m", "b", ASKED, 0.0)
    assert index.held("m", ASKED, SETTLED_S) == {"a": 300, "b": 300}


def test_beyond_what_was_learned_counts_what_was_sent():
    index = informed()
    longer = Prompt((1, 2, 3, 4), (100, 200, 300, 400))
    index.placed("m", "a", longer, 0.0)
    assert index.held("m", longer, SETTLED_S) == {"a": 400, "b": 150}


def test_a_replica_that_misses_some_probes_keeps_what_its_events_say():
    index = informed()
    index.placed("m", "c", ASKED, 0.0)
    for replica in ("a", "c"):
        index.forget(("m", replica))
    assert index.held("m", ASKED, 0.0) == {"a": 300, "b": 150}


def test_only_prompts_of_pools_that_tell_their_blocks_are_worth_learning():
    index = Index()
    index.placed("m", "a", ASKED, 0.0)
    assert (index.unlearned("m", ASKED), index.unlearned("unknown", ASKED)) == (0, 0)
    index.pool("m").blocks.apply("a", Stored((1,), None, IDS[:10], 10))
    assert index.unlearned("m", ASKED) == 300
    learn(index, ASKED)
    assert index.unlearned("m", ASKED) == 0
    assert index.unlearned("m", Prompt((1, 8), (100, 150))) == 50
    index.pool("m").blocks.apply("b", Stored((1,), None, IDS[:16], 16))
    assert index.unlearned("m", ASKED) == 300  # in blocks of 16 it is not known


def test_a_salted_prompt_has_blocks_of_its_own():
    index = Index()
    index.pool("m").blocks.apply("a", Stored((1,), None, IDS[:10], 10, (b"acme",)))
    learn(index, Prompt((1,), (10,)), 10)
    learn(index, Prompt((2,), (10,)), 10, b"acme")
    assert index.held("m", Prompt((1,), (10,)), 0.0) == {}
    assert index.held("m", Prompt((2,), (10,)), 0.0) == {"a": 10}
