"""A replica that is another process under its old id is cold: what was known of it goes."""

from picking import FLEET, Picking

from homing.core.fleet import ProcessSeen


def test_its_sessions_are_forgotten_and_nobody_elses():
    first = FLEET.apply(ProcessSeen("p", "gpu-0", 1000)).apply(ProcessSeen("p", "gpu-1", 1000))
    picking = Picking(first)
    sessions = [b"s%d" % i for i in range(30)]
    for session in sessions:
        picking.route(session).release()
    placer = picking.picker.placer
    before = list(placer.residents((picking.picker.fleet.by_id["p"],), picking.now))
    assert len(set(before)) == 3
    picking.picker.adopt(first.apply(ProcessSeen("p", "gpu-0", 2000)))
    after = list(placer.residents((picking.picker.fleet.by_id["p"],), picking.now))
    assert sorted(after) == sorted(place for place in before if place != ("p", "gpu-0"))


def test_a_process_that_is_seen_for_the_first_time_is_no_restart():
    picking = Picking()
    for i in range(30):
        picking.route(b"s%d" % i).release()
    picking.picker.adopt(FLEET.apply(ProcessSeen("p", "gpu-0", 1000)))
    placer = picking.picker.placer
    assert len(list(placer.residents((picking.picker.fleet.by_id["p"],), picking.now))) == 30


def test_the_same_replica_id_in_another_pool_is_another_replica():
    first = FLEET.apply(ProcessSeen("q", "gpu-0", 1000))
    picking = Picking(first)
    picking.route(b"s").release()
    picking.picker.adopt(first.apply(ProcessSeen("q", "gpu-0", 2000)))
    placer = picking.picker.placer
    assert len(list(placer.residents((picking.picker.fleet.by_id["p"],), picking.now))) == 1
