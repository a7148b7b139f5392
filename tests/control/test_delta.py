from homing.control.ads import Acked, Nacked
from homing.control.delta import DeltaRequested, DeltaStream, SendDelta
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot


def shot(clusters=(), endpoints=(), listeners=(), routes=()):
    sets = {CDS: clusters, EDS: endpoints, LDS: listeners, RDS: routes}
    return Snapshot({t: Resources.of({n: b.encode() for n, b in dict(r).items()}) for t, r in sets.items()})


def sent(outputs):
    """(type, names sent, names removed) of the responses."""
    sends = [o for o in outputs if isinstance(o, SendDelta)]
    return [(o.type_url, [name for name, _, _ in o.resources], list(o.removed)) for o in sends]


def ack(stream, response, error=None):
    return stream.requested(DeltaRequested(response.type_url, response_nonce=response.nonce, error=error))


def test_a_wildcard_gets_all_and_then_only_what_changed():
    stream = DeltaStream(shot({"a": "1", "b": "1"}))
    (first,) = stream.requested(DeltaRequested(CDS))
    assert sent([first]) == [(CDS, ["a", "b"], [])]
    assert ack(stream, first) == (Acked(CDS, first.version, first.nonce),)
    assert sent(stream.published(shot({"a": "2", "c": "1"}))) == [(CDS, ["a", "c"], ["b"])]


def test_a_snapshot_that_changes_nothing_for_a_client_is_silence():
    stream = DeltaStream(shot({"a": "1"}, {"a": "1"}))
    stream.requested(DeltaRequested(EDS, ("a",)))
    assert stream.published(shot({"a": "1"}, {"a": "1", "b": "1"})) == ()


def test_the_first_wildcard_is_answered_even_if_there_is_nothing():
    stream = DeltaStream(shot())
    assert sent(stream.requested(DeltaRequested(CDS))) == [(CDS, [], [])]
    assert stream.requested(DeltaRequested(EDS)) == ()


def test_a_name_that_does_not_exist_is_removed_and_told_once():
    stream = DeltaStream(shot())
    assert sent(stream.requested(DeltaRequested(EDS, ("a", "b")))) == [(EDS, [], ["a", "b"])]
    assert sent(stream.published(shot({}, {"a": "1"}))) == [(EDS, ["a"], [])]
    assert sent(stream.published(shot())) == [(EDS, [], ["a"])]


def test_what_is_subscribed_again_is_sent_again():
    stream = DeltaStream(shot({}, {"a": "1", "b": "1"}))
    stream.requested(DeltaRequested(EDS, ("a", "b")))
    assert sent(stream.requested(DeltaRequested(EDS, ("a",)))) == [(EDS, ["a"], [])]


def test_what_is_unsubscribed_is_not_told_any_more_but_under_a_wildcard():
    stream = DeltaStream(shot({"a": "1"}, {"a": "1", "b": "1"}))
    stream.requested(DeltaRequested(EDS, ("a", "b")))
    assert stream.requested(DeltaRequested(EDS, (), ("a",))) == ()
    assert sent(stream.published(shot({"a": "1"}, {"a": "2", "b": "2"}))) == [(EDS, ["b"], [])]
    stream.requested(DeltaRequested(CDS, ("*", "a")))
    assert sent(stream.requested(DeltaRequested(CDS, (), ("a",)))) == [(CDS, ["a"], [])]
    assert stream.requested(DeltaRequested(CDS, (), ("*",))) == ()
    assert stream.published(shot({"a": "3"})) == () or sent(stream.published(shot({"a": "3"}))) == []


def test_a_reconnect_sends_only_what_differs():
    now = shot({"a": "1", "b": "2"}, {"a": "1"})
    first = DeltaStream(now)
    (clusters,) = first.requested(DeltaRequested(CDS))
    (endpoints,) = first.requested(DeltaRequested(EDS, ("a",)))
    versions = {name: version for name, version, _ in (*clusters.resources, *endpoints.resources)}
    del versions
    held = tuple((name, version) for name, version, _ in clusters.resources)
    again = DeltaStream(shot({"a": "1", "b": "3"}, {"a": "1"}))
    assert sent(again.requested(DeltaRequested(CDS, initial_versions=(*held, ("gone", "x"))))) == [
        (CDS, ["b"], ["gone"])
    ]
    held = tuple((name, version) for name, version, _ in endpoints.resources)
    assert again.requested(DeltaRequested(EDS, ("a",), initial_versions=held)) == ()


def test_a_changed_cluster_gets_fresh_endpoints():
    stream = DeltaStream(shot({"a": "1", "b": "1"}, {"a": "1", "b": "1"}))
    stream.requested(DeltaRequested(CDS))
    stream.requested(DeltaRequested(EDS, ("a", "b")))
    changed = stream.published(shot({"a": "2", "b": "1"}, {"a": "1", "b": "1"}))
    assert sent(changed) == [(CDS, ["a"], []), (EDS, ["a"], [])]


def test_what_was_refused_is_not_sent_again_until_it_changes():
    stream = DeltaStream(shot({"a": "1"}))
    (first,) = stream.requested(DeltaRequested(CDS))
    assert ack(stream, first, "bad") == (Nacked(CDS, first.version, first.nonce, "bad"),)
    assert (stream.answer, stream.types[CDS].error) == ("nacked", "bad")
    assert stream.published(shot({"a": "1"})) == ()
    (second,) = stream.published(shot({"a": "2"}))
    ack(stream, second)
    assert (stream.answer, stream.types[CDS].accepted) == ("acked", second.version)


def test_a_stale_nonce_judges_nothing_but_its_subscriptions_count():
    stream = DeltaStream(shot({}, {"a": "1", "b": "1"}))
    (first,) = stream.requested(DeltaRequested(EDS, ("a",)))
    (second,) = stream.published(shot({}, {"a": "2", "b": "1"}))
    late = stream.requested(DeltaRequested(EDS, ("b",), response_nonce=first.nonce, error="bad"))
    assert sent(late) == [(EDS, ["b"], [])]
    assert stream.types[EDS].error == ""
    assert second.nonce != late[0].nonce


def test_what_leaves_goes_before_what_it_refers_to():
    full = shot({"a": "1"}, {"a": "1"}, {"l": "1"}, {"r": "1"})
    stream = DeltaStream(full)
    for request in (DeltaRequested(CDS), DeltaRequested(EDS, ("a",)), DeltaRequested(LDS), DeltaRequested(RDS, ("r",))):
        stream.requested(request)
    left = stream.published(shot({}, {}, {"l": "2"}, {"r": "2"}))
    assert [t for t, _, _ in sent(left)] == [LDS, RDS, CDS, EDS]


def test_other_types_are_not_answered():
    assert DeltaStream(shot()).requested(DeltaRequested("type.googleapis.com/other")) == ()
