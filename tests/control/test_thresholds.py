import pytest

from homing.control.thresholds import Verdict
from homing.core.config import HealthCheck

CHECK = HealthCheck(unhealthy_threshold=3, healthy_threshold=2)


def verdicts(start, probes):
    verdict, seen = start, []
    for probe in probes:
        verdict = verdict.after(probe == "+", CHECK)
        seen.append("H" if verdict.healthy else "u")
    return "".join(seen)


@pytest.mark.parametrize(
    ("healthy", "probes", "expected"),
    [
        (False, "++", "uH"),
        (False, "+-++", "uuuH"),
        (True, "---", "HHu"),
        (True, "--+--+--", "HHHHHHHH"),
        (True, "---+-++", "HHuuuuH"),
        (True, "-----", "HHuuu"),
    ],
)
def test_a_run_of_equal_probes_changes_the_verdict(healthy, probes, expected):
    assert verdicts(Verdict(healthy), probes) == expected


def test_settled_once_a_threshold_is_reached_either_way():
    one = Verdict(False).after(True, CHECK)
    assert not one.settled
    assert one.after(True, CHECK).settled
    two = Verdict(False).after(False, CHECK).after(False, CHECK)
    assert not two.settled
    assert two.after(False, CHECK).settled


def test_others_hear_of_the_first_verdict_and_of_changes_only():
    verdict, told = Verdict(True), []
    for ok in (True, True, True, False, False, False, False, True, True):
        before, verdict = verdict, verdict.after(ok, CHECK)
        told.append(verdict.tells_more_than(before))
    assert told == [False, True, False, False, False, True, False, False, True]
