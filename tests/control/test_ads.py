"""The rules of xds_protocol.rst, one test each; events and outputs compare with ==."""

from homing.control.ads import (
    Acked,
    AdsStream,
    Answer,
    DiscoveryRequested,
    Nacked,
    Send,
    SnapshotPublished,
)
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot


def snapshot(cds=None, eds=None, lds=None, rds=None):
    given = {CDS: cds, EDS: eds, LDS: lds, RDS: rds}
    return Snapshot({t: Resources.of({k: v.encode() for k, v in (r or {}).items()}) for t, r in given.items()})


ONE = snapshot(cds={"a": "a1"}, eds={"a": "e1"}, lds={"l": "l1"}, rds={"r": "r1"})
TWO = snapshot(cds={"a": "a1"}, eds={"a": "e2"}, lds={"l": "l1"}, rds={"r": "r1"})


def ask(stream, type_url, *names, nonce="", version="", error=None):
    return stream.receive(DiscoveryRequested(type_url, version, nonce, names, error))


def only_send(outputs):
    (send,) = (o for o in outputs if isinstance(o, Send))
    return send


def subscribed(shot=ONE):
    """A stream whose client subscribed to everything and accepted it, as Envoy does at boot."""
    stream = AdsStream(shot)
    sends = {}
    for type_url, names in ((CDS, ()), (EDS, ("a",)), (LDS, ()), (RDS, ("r",))):
        sends[type_url] = sent = only_send(ask(stream, type_url, *names))
        ask(stream, type_url, *names, nonce=sent.nonce, version=sent.version)
    return stream, sends


def types_of(outputs):
    return [o.type_url for o in outputs if isinstance(o, Send)]


def test_first_request_is_answered_with_the_current_version():
    assert ask(AdsStream(ONE), CDS) == (Send(CDS, ONE.types[CDS].version, "1", (("a", b"a1"),)),)


def test_before_the_first_snapshot_requests_wait_for_it():
    stream = AdsStream()
    assert ask(stream, LDS) == ()
    assert ask(stream, CDS) == ()
    assert types_of(stream.receive(SnapshotPublished(ONE))) == [CDS, LDS]


def test_ack_is_reported_and_not_answered():
    stream = AdsStream(ONE)
    sent = only_send(ask(stream, CDS))
    assert ask(stream, CDS, nonce="1", version=sent.version) == (Acked(CDS, sent.version, "1"),)
    assert stream.types[CDS].accepted == sent.version
    assert stream.answer is Answer.ACKED


def test_nack_is_told_by_the_error_and_silences_the_type_until_the_next_snapshot():
    stream, sends = subscribed()
    (sent,) = stream.receive(SnapshotPublished(TWO))
    assert ask(stream, EDS, "a", nonce=sent.nonce, version=sends[EDS].version, error="bad") == (
        Nacked(EDS, sent.version, sent.nonce, "bad"),
    )
    assert stream.types[EDS].accepted == sends[EDS].version
    assert stream.answer is Answer.NACKED
    assert ask(stream, EDS, "a", nonce=sent.nonce, version=sends[EDS].version) == ()
    assert stream.types[EDS].error == "bad"
    assert stream.receive(SnapshotPublished(TWO)) == ()
    assert types_of(stream.receive(SnapshotPublished(ONE))) == [EDS]


def test_nack_with_the_accepted_version_is_not_taken_for_an_ack_by_its_version():
    stream = AdsStream(ONE)
    sent = only_send(ask(stream, CDS))
    assert ask(stream, CDS, nonce=sent.nonce, version=sent.version, error="odd") == (
        Nacked(CDS, sent.version, sent.nonce, "odd"),
    )


def test_an_empty_error_text_is_still_a_nack():
    stream = AdsStream(ONE)
    sent = only_send(ask(stream, CDS))
    assert ask(stream, CDS, nonce=sent.nonce, error="") == (Nacked(CDS, sent.version, sent.nonce, ""),)


def test_stale_nonce_is_ignored_with_its_names():
    stream, sends = subscribed()
    stream.receive(SnapshotPublished(TWO))
    assert ask(stream, EDS, "a", "b", nonce=sends[EDS].nonce) == ()
    assert stream.types[EDS].subscription.names == {"a"}
    assert stream.answer is Answer.PENDING


def test_the_ack_after_a_stale_request_carries_the_new_names():
    both = snapshot(cds={"a": "a1", "b": "b1"}, eds={"a": "e1", "b": "f1"})
    stream, sends = subscribed()
    sent = next(o for o in stream.receive(SnapshotPublished(both)) if o.type_url == EDS)
    assert ask(stream, EDS, "a", "b", nonce=sends[EDS].nonce) == ()
    acked, more = ask(stream, EDS, "a", "b", nonce=sent.nonce)
    assert acked == Acked(EDS, sent.version, sent.nonce)
    assert more.resources == (("a", b"e1"), ("b", b"f1"))


def test_empty_list_is_a_wildcard_only_if_nothing_was_ever_named():
    stream = AdsStream(snapshot(cds={"a": "a1", "b": "b1"}))
    assert only_send(ask(stream, CDS)).resources == (("a", b"a1"), ("b", b"b1"))
    named = AdsStream(snapshot(cds={"a": "a1", "b": "b1"}))
    first = only_send(ask(named, CDS, "b"))
    assert first.resources == (("b", b"b1"),)
    assert ask(named, CDS, nonce=first.nonce) == (Acked(CDS, first.version, first.nonce),)
    assert named.types[CDS].subscription.empty
    assert named.receive(SnapshotPublished(snapshot(cds={"b": "b2"}))) == ()


def test_star_is_a_wildcard_and_dropping_it_unsubscribes():
    stream = AdsStream(snapshot(cds={"a": "a1", "b": "b1"}))
    first = only_send(ask(stream, CDS, "*"))
    assert first.resources == (("a", b"a1"), ("b", b"b1"))
    assert ask(stream, CDS, nonce=first.nonce) == (Acked(CDS, first.version, first.nonce),)
    assert stream.types[CDS].subscription.empty
    again = only_send(ask(stream, CDS, "*", nonce=first.nonce))
    assert again.resources == first.resources


def test_wildcard_with_names_stays_a_wildcard_until_the_star_goes():
    stream = AdsStream(snapshot(cds={"a": "a1", "b": "b1"}))
    first = only_send(ask(stream, CDS, "*", "a"))
    assert [name for name, _ in first.resources] == ["a", "b"]
    narrowed = only_send(ask(stream, CDS, "a", nonce=first.nonce))
    assert [name for name, _ in narrowed.resources] == ["a"]


def test_eds_has_no_wildcard():
    stream = AdsStream(ONE)
    assert ask(stream, EDS) == ()
    assert ask(stream, EDS, "*") == ()
    assert only_send(ask(stream, EDS, "a")).resources == (("a", b"e1"),)


def test_eds_without_resources_is_not_sent_and_cds_without_resources_is():
    stream = AdsStream(snapshot())
    assert ask(stream, EDS, "ghost") == ()
    assert ask(stream, RDS, "ghost") == ()
    assert only_send(ask(stream, CDS)).resources == ()
    assert only_send(ask(stream, LDS)).resources == ()


def test_a_name_unknown_at_first_is_sent_when_it_appears():
    stream = AdsStream(snapshot())
    ask(stream, EDS, "a")
    (sent,) = stream.receive(SnapshotPublished(ONE))
    assert sent.resources == (("a", b"e1"),)


def test_only_changed_types_are_sent():
    stream, _ = subscribed()
    assert types_of(stream.receive(SnapshotPublished(TWO))) == [EDS]


def test_an_equal_snapshot_sends_nothing():
    stream, _ = subscribed()
    assert stream.receive(SnapshotPublished(snapshot({"a": "a1"}, {"a": "e1"}, {"l": "l1"}, {"r": "r1"}))) == ()


def test_types_are_sent_in_the_order_cds_eds_lds_rds():
    stream, _ = subscribed()
    outputs = stream.receive(SnapshotPublished(snapshot({"a": "a2"}, {"a": "e2"}, {"l": "l2"}, {"r": "r2"})))
    assert types_of(outputs) == [CDS, EDS, LDS, RDS]


def test_a_cluster_leaves_after_the_routes_to_it():
    two_pools = snapshot({"a": "a1", "b": "b1"}, {"a": "e1", "b": "f1"}, {"l": "l1"}, {"r": "to a and b"})
    stream, _ = subscribed(two_pools)
    outputs = stream.receive(SnapshotPublished(snapshot({"a": "a1"}, {"a": "e1"}, {"l": "l1"}, {"r": "to a"})))
    assert types_of(outputs) == [RDS, CDS, EDS]


def test_eds_is_sent_again_after_a_cluster_change_even_if_unchanged():
    stream, sends = subscribed()
    cds, eds = stream.receive(SnapshotPublished(snapshot({"a": "a2"}, {"a": "e1"}, {"l": "l1"}, {"r": "r1"})))
    assert (cds.type_url, eds.type_url) == (CDS, EDS)
    assert eds.resources == sends[EDS].resources


def test_rds_is_sent_again_after_a_listener_change():
    stream, _ = subscribed()
    outputs = stream.receive(SnapshotPublished(snapshot({"a": "a1"}, {"a": "e1"}, {"l": "l2"}, {"r": "r1"})))
    assert types_of(outputs) == [LDS, RDS]


def test_reconnecting_client_that_has_the_version_is_not_sent_it_again():
    _, sends = subscribed()
    fresh = AdsStream(ONE)
    for type_url, names in ((CDS, ()), (EDS, ("a",)), (LDS, ()), (RDS, ("r",))):
        assert ask(fresh, type_url, *names, version=sends[type_url].version) == ()
    assert fresh.answer is Answer.ACKED
    assert types_of(fresh.receive(SnapshotPublished(TWO))) == [EDS]


def test_reconnecting_client_with_another_subscription_is_answered():
    _, sends = subscribed()
    both = AdsStream(ONE)
    assert types_of(ask(both, EDS, "a", "b", version=sends[EDS].version)) == [EDS]


def test_reconnecting_client_that_missed_the_eds_after_its_cluster_change_is_sent_it():
    """The stream broke between CDS and EDS: the client's EDS version is old although no endpoint changed."""
    _, sends = subscribed()
    changed = snapshot({"a": "a2"}, {"a": "e1"}, {"l": "l1"}, {"r": "r1"})
    fresh = AdsStream(changed)
    assert ask(fresh, CDS, version=changed.types[CDS].version) == ()
    assert types_of(ask(fresh, EDS, "a", version=sends[EDS].version)) == [EDS]


def test_reconnecting_client_with_a_foreign_version_is_answered():
    assert types_of(ask(AdsStream(ONE), CDS, version="of-another-server", nonce="77")) == [CDS]


def test_an_error_on_a_first_request_judges_nothing():
    stream = AdsStream(ONE)
    assert types_of(ask(stream, CDS, error="from an earlier stream")) == [CDS]
    assert stream.answer is Answer.PENDING


def test_unsubscribed_and_subscribed_again_is_sent_again():
    stream, sends = subscribed()
    assert ask(stream, EDS, nonce=sends[EDS].nonce) == ()
    again = only_send(ask(stream, EDS, "a", nonce=sends[EDS].nonce))
    assert again.resources == (("a", b"e1"),)
    assert again.nonce != sends[EDS].nonce


def test_changed_names_are_answered_at_the_same_version():
    shot = snapshot(cds={"a": "a1", "b": "b1"}, eds={"a": "e1", "b": "f1"})
    stream = AdsStream(shot)
    first = only_send(ask(stream, EDS, "a"))
    second = only_send(ask(stream, EDS, "a", "b", nonce=first.nonce))
    assert [name for name, _ in second.resources] == ["a", "b"]
    assert second.version != first.version


def test_order_and_repetition_of_names_do_not_matter():
    shot = snapshot(cds={"a": "a1", "b": "b1"}, eds={"a": "e1", "b": "f1"})
    stream = AdsStream(shot)
    first = only_send(ask(stream, EDS, "a", "b"))
    assert ask(stream, EDS, "b", "a", "b", nonce=first.nonce) == (Acked(EDS, first.version, first.nonce),)


def test_a_newer_snapshot_is_sent_although_the_client_has_not_answered_yet():
    """Envoy holds back the ACK of CDS while a cluster warms; the next snapshot may be what ends that."""
    stream = AdsStream(ONE)
    ask(stream, CDS)
    (sent,) = stream.receive(SnapshotPublished(snapshot(cds={"a": "a2"})))
    assert (sent.nonce, sent.resources) == ("2", (("a", b"a2"),))
    assert ask(stream, CDS, nonce="1") == ()
    assert ask(stream, CDS, nonce="2") == (Acked(CDS, sent.version, "2"),)


def test_unknown_types_are_tolerated_and_leave_no_state():
    stream = AdsStream(ONE)
    assert ask(stream, "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "x") == ()
    assert stream.types == {}
    assert types_of(ask(stream, CDS)) == [CDS]


def test_types_have_states_of_their_own():
    stream = AdsStream(ONE)
    cds, lds = only_send(ask(stream, CDS)), only_send(ask(stream, LDS))
    assert ask(stream, LDS, nonce=cds.nonce) == ()
    assert ask(stream, LDS, nonce=lds.nonce) == (Acked(LDS, lds.version, lds.nonce),)
