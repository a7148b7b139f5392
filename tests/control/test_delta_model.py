"""Any sequence of subscriptions, answers, reconnects and snapshots ends with the client holding what it subscribed to.

The client of this model keeps resources by name, rejects a whole response for one bad resource, and after a reconnect
says what it has. Messages are in flight both ways, and arrive in order, at any time.
"""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from homing.control.delta import DeltaRequested, DeltaStream, SendDelta
from homing.control.snapshot import CDS, EDS, LDS, ORDER, RDS, Resources, Snapshot

BAD = b"bad"
NAMES = ("a", "b", "c")


class Client:
    """Wildcards for clusters and listeners; endpoints and routes by name."""

    def __init__(self):
        self.holds = {t: {} for t in ORDER}
        self.names = {t: set() for t in (EDS, RDS)}
        self.outbox, self.inbox = deque(), deque()
        self.refused = False

    def connect(self, snapshot):
        self.stream = DeltaStream(snapshot)
        self.outbox.clear()
        self.inbox.clear()
        for type_url in ORDER:
            held = tuple((n, v) for n, (v, _) in self.holds[type_url].items())
            if type_url in self.names:
                self.holds[type_url] = {n: r for n, r in self.holds[type_url].items() if n in self.names[type_url]}
                held = tuple((n, v) for n, (v, _) in self.holds[type_url].items())
                self.outbox.append(DeltaRequested(type_url, tuple(sorted(self.names[type_url])), (), held))
            else:
                self.outbox.append(DeltaRequested(type_url, initial_versions=held))

    def subscribe(self, type_url, name):
        self.names[type_url].add(name)
        self.outbox.append(DeltaRequested(type_url, (name,)))

    def unsubscribe(self, type_url, name):
        self.names[type_url].discard(name)
        self.holds[type_url].pop(name, None)
        self.outbox.append(DeltaRequested(type_url, (), (name,)))

    def request_arrives(self):
        if self.outbox:
            self._deliver(self.stream.requested(self.outbox.popleft()))

    def response_arrives(self):
        if self.inbox:
            self._receive(self.inbox.popleft())

    def publish(self, snapshot):
        self._deliver(self.stream.published(snapshot))

    def _deliver(self, outputs):
        self.inbox.extend(o for o in outputs if isinstance(o, SendDelta))

    def _receive(self, response):
        bad = any(body == BAD for _, _, body in response.resources)
        if not bad:
            mine = self.names.get(response.type_url)
            held = self.holds[response.type_url]
            for name, version, body in response.resources:
                if mine is None or name in mine:
                    held[name] = (version, body)
            for name in response.removed:
                held.pop(name, None)
        error = "bad resource" if bad else None
        self.outbox.append(DeltaRequested(response.type_url, response_nonce=response.nonce, error=error))

    def settle(self):
        for _ in range(300):
            if not (self.outbox or self.inbox):
                return
            self.request_arrives()
            self.response_arrives()
        raise AssertionError("client and server never fall silent")


def shots(content):
    sets = st.dictionaries(st.sampled_from(NAMES), content, max_size=3)
    return st.builds(
        lambda *each: Snapshot({t: Resources.of(r) for t, r in zip((CDS, EDS, LDS, RDS), each, strict=True)}),
        *[sets] * 4,
    )


good = st.sampled_from([b"1", b"2"])
steps = st.one_of(
    st.tuples(st.just("publish"), shots(st.sampled_from([b"1", b"2", BAD])), st.none()),
    st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), st.sampled_from([EDS, RDS]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["request", "response", "reconnect"]), st.none(), st.none()),
)


@settings(max_examples=400)
@given(first=shots(good), script=st.lists(steps, max_size=40), last=shots(good))
def test_client_ends_with_what_it_subscribed_to_of_the_newest_snapshot(first, script, last):
    client, newest = Client(), first
    client.connect(first)
    for kind, what, name in script:
        match kind:
            case "publish":
                newest = what
                client.publish(what)
            case "subscribe":
                client.subscribe(what, name)
            case "unsubscribe":
                client.unsubscribe(what, name)
            case "request":
                client.request_arrives()
            case "response":
                client.response_arrives()
            case "reconnect":
                client.connect(newest)
    client.settle()
    client.publish(last)
    client.settle()
    for type_url in ORDER:
        covered = client.names.get(type_url, set(NAMES))
        expected = {n: b for n, b in last.types[type_url].by_name.items() if n in covered}
        assert {n: b for n, (_, b) in client.holds[type_url].items()} == expected
    assert client.stream.answer == "acked"


@settings(max_examples=100)
@given(shot=shots(good), names=st.sets(st.sampled_from(NAMES)))
def test_reconnecting_a_settled_client_sends_no_resource(shot, names):
    client = Client()
    client.connect(shot)
    for name in names:
        client.subscribe(EDS, name)
        client.subscribe(RDS, name)
    client.settle()
    client.connect(shot)
    while client.outbox:
        client.request_arrives()
    assert [r.resources for r in client.inbox if r.resources] == []
