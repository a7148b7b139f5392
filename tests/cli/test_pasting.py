"""Fragments in a configuration that exists."""

from __future__ import annotations

import pytest

from homing.cli.pasting import PastingError, filled_in

MARKED = """\
http_filters:
  # fragment http-filters
  # end of fragment http-filters
  - name: router
cluster:
# fragment cluster:a
# end of fragment cluster:a
"""

FILLED = """\
http_filters:
  # fragment http-filters (homing 1 abc)
  - name: x

    code: |
      one
  # end of fragment http-filters
  - name: router
cluster:
# fragment cluster:a (homing 1 abc)
type: EDS
# end of fragment cluster:a
"""

FRAGMENTS = {"http-filters": "- name: x\n\n  code: |\n    one\n", "cluster:a": "type: EDS\n"}


def rendered(name: str) -> str:
    return f"# fragment {name} (homing 1 abc)\n{FRAGMENTS[name]}# end of fragment {name}\n"


def test_each_marked_place_is_filled_in_at_its_own_indentation() -> None:
    assert filled_in(MARKED, rendered) == FILLED


def test_what_was_filled_in_before_is_replaced() -> None:
    older = FILLED.replace("homing 1 abc", "homing 0 000").replace("type: EDS", "type: STATIC")
    assert filled_in(older, rendered) == FILLED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("static_resources: {}\n", "no place is marked"),
        (MARKED.replace("  # end of fragment http-filters\n", ""), "`# fragment http-filters` has no"),
        (MARKED.replace("# end of fragment cluster:a\n", ""), "`# fragment cluster:a` has no"),
    ],
)
def test_places_that_are_not_well_marked_are_refused(text: str, said: str) -> None:
    with pytest.raises(PastingError, match=said):
        filled_in(text, rendered)
