"""Text that is another with every turn, near the beginning of the prompt: all that follows is another prompt, too."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from homing.core.verify.conversation import Prompt, common, flat
from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence

BROKEN = 0.9
"""A prompt of which less than this share begins the next one has been changed, and not only at its end."""

MANY = 0.2
"""So many of the turns make a finding."""

_NEAR = 24  # characters on each side in which a time or an id is looked for
_TIME = re.compile(r"\d{1,2}:\d{2}|\d{4}-\d{2}-\d{2}|\b1[5-9]\d{8}(?:\d{3})?\b")
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}|[0-9a-fA-F]{12,}|[A-Za-z0-9_-]{20,}")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two prompts of one conversation part: the message (from 1), its role, the character in it (from 1), and
    what stands there, in a word: never the text."""

    message: int
    role: str
    character: int
    looks: str


def diagnose(evidence: Evidence) -> Finding | None:
    steps = [step for conversation in evidence.conversations for step in conversation.steps()]
    differences = [found for step in steps if (found := difference(*step)) is not None]
    if not steps or len(differences) < len(steps) * MANY:
        return None
    (message, role), count = Counter((d.message, d.role) for d in differences).most_common(1)[0]
    here = [d for d in differences if (d.message, d.role) == (message, role)]
    looks = Counter(d.looks for d in here).most_common(1)[0][0]
    where = sorted(d.character for d in here)[len(here) // 2]
    return fault(
        "changing_front",
        f"{len(differences)} of {len(steps)} turns do not begin as the turn before did. {count} of them part in"
        f" message {message} ({role}), most often about character {where}{looks}.",
        "Whatever stands behind a changed text is computed anew. Put what changes (times, ids, retrieved documents)"
        " at the end of the prompt, into the newest message, and add to a history instead of cutting it.",
    )


def difference(before: Prompt, after: Prompt) -> Difference | None:
    """None where `after` goes on from (nearly) all of `before`."""
    one, other = flat(before), flat(after)
    same = common(one, other)
    if same >= len(one) * BROKEN:
        return None
    at, message = same, 0
    while message < len(before) - 1 and at >= len(before[message].text):
        at -= len(before[message].text)
        message += 1
    found = before[message]
    inside = max(0, at - len(found.role) - 1)
    return Difference(message + 1, found.role, inside + 1, _looks(one, other, same))


def _looks(one: str, other: str, at: int) -> str:
    near = [text[max(0, at - _NEAR) : at + _NEAR] for text in (one, other)]
    if all(map(_TIME.search, near)):
        return ", where a time stands"
    return ", where an id stands" if all(map(_ID.search, near)) else ""
