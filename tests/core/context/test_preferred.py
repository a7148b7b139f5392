from homing.core.context.preferred import Preferred


def held(*pools: str) -> str | None:
    preferred = Preferred(100.0, 10)
    for i, pool in enumerate(pools):
        preferred.note(b"s", pool, float(i))
    return preferred.get(b"s", float(len(pools)))


def test_a_session_is_held_with_the_model_that_it_began_with():
    assert held() is None
    assert held("large") == "large"
    assert held("large", "small") == "large"
    assert held("large", "small", "large", "small") == "large"


def test_two_in_a_row_move_it():
    assert held("large", "small", "small") == "small"
    assert held("large", "small", "other", "small") == "large"
    assert held("large", "small", "small", "large") == "small"


def test_idle_sessions_and_too_many_are_forgotten():
    preferred = Preferred(10.0, 2)
    preferred.note(b"a", "large", 0.0)
    assert preferred.get(b"a", 10.0) is None
    preferred.note(b"a", "small", 11.0)
    assert preferred.get(b"a", 11.0) == "small"
    for i in range(5):
        preferred.note(b"%d" % i, "large", 12.0)
    assert len(preferred) == 2
    preferred.forget(b"4")
    assert preferred.get(b"4", 12.0) is None
