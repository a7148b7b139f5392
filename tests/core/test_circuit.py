"""Who does not answer is asked once in a while, until it answers."""

from __future__ import annotations

from homing.core.circuit import Circuit


def test_it_opens_after_so_many_failures_in_a_row_and_lets_one_through_in_each_while():
    circuit = Circuit(failures=3, open_s=1.0)
    for _ in range(2):
        circuit.failed(10.0)
    circuit.succeeded()
    for now in (10.0, 10.1, 10.2):
        assert circuit.allows(now)
        circuit.failed(now)
    assert [circuit.allows(now) for now in (10.3, 11.1, 11.2, 11.3, 12.1, 12.2, 12.3)] == [
        *(False, False, True),
        *(False, False, True, False),
    ]
    assert circuit.open


def test_an_answer_closes_it():
    circuit = Circuit(failures=1, open_s=1.0)
    circuit.failed(0.0)
    assert not circuit.allows(0.9)
    assert circuit.allows(1.0)
    circuit.succeeded()
    assert (circuit.open, circuit.allows(1.0), circuit.allows(1.0)) == (False, True, True)
