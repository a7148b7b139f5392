from homing.core.placement.prefix import NoPrefixes, PrefixIndex
from homing.core.prefix.index import Index
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


def test_without_an_index_nobody_holds_anything():
    index: PrefixIndex = NoPrefixes()
    index.placed("m", "a", ASKED, 0.0)
    assert index.held("m", ASKED, 0.0) == {}
