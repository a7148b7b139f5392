from homing.core.fleet import Pool, Replica
from homing.core.sources import Difference
from homing.core.sources import merge as merged_whole


def pool(*replicas, pool_id="p"):
    return Pool(pool_id, "m", replicas=replicas)


def merge(pools, reports):
    merged = merged_whole(pools, reports)
    return merged.pools, merged.differences


A = Replica("a", "10.0.0.1:80")
B = Replica("b", "10.0.0.2:80")


def test_without_other_sources_the_file_is_all():
    assert merge((pool(A, B),), {}) == ((pool(A, B),), ())


def test_what_sources_report_comes_after_the_files():
    merged, differences = merge((pool(A),), {"api": {"p": (B,)}, "dns": {"p": (Replica("c", "10.0.0.3:80"),)}})
    assert [r.id for r in merged[0].replicas] == ["a", "b", "c"]
    assert differences == ()


def test_the_file_wins_and_the_difference_is_told():
    theirs = Replica("a", "10.0.0.9:80", weight=2)
    merged, differences = merge((pool(A),), {"api": {"p": (theirs,)}})
    assert merged == (pool(A),)
    assert differences == (
        Difference("p", "a", "file", "api", "address 10.0.0.1:80, weight 1", "address 10.0.0.9:80, weight 2"),
    )


def test_the_first_source_wins_over_later_ones():
    merged, (difference,) = merge((pool(),), {"api": {"p": (A,)}, "dns": {"p": (Replica("a", "10.0.0.9:80"),)}})
    assert merged == (pool(A),)
    assert (difference.believed, difference.source) == ("api", "dns")


def test_sources_that_agree_make_no_difference():
    assert merge((pool(A),), {"api": {"p": (A,)}}) == ((pool(A),), ())


def test_an_address_belongs_to_one_replica():
    merged, (difference,) = merge((pool(A),), {"dns": {"p": (Replica("x", "10.0.0.1:80"),)}})
    assert merged == (pool(A),)
    assert (difference.replica, difference.ours, difference.theirs) == ("a", "a at 10.0.0.1:80", "x at 10.0.0.1:80")


def test_ranks_share_the_address_of_their_host():
    ranks = tuple(Replica(f"a-{rank}", "10.0.0.1:80", rank=rank) for rank in range(2))
    assert merge((pool(),), {"list": {"p": ranks}}) == ((pool(*ranks),), ())
    merged, (difference,) = merge((pool(*ranks),), {"api": {"p": (A,)}})
    assert merged == (pool(*ranks),)
    assert (difference.replica, difference.theirs) == ("a-1", "a at 10.0.0.1:80")
    elsewhere = Replica("a", "10.0.0.9:80")
    assert merge((pool(*ranks),), {"api": {"p": (elsewhere,)}})[0] == (pool(*ranks),), "their host is called so"


def test_reports_of_unknown_pools_are_left_out():
    assert merge((pool(A),), {"api": {"q": (B,)}}) == ((pool(A),), ())


def test_it_is_known_who_is_believed():
    sources = merged_whole((pool(A),), {"api": {"p": (A, B)}}).sources
    assert sources == {("p", "a"): "file", ("p", "b"): "api"}
