"""`developer` is OpenAI's later name for `system`; most templates drop it without a word.

vLLM makes it system as well, and moves all system texts to the front when it does: the prefix of every turn before is
lost. Made here, each stays where it stands.
"""

from __future__ import annotations

from homing.core.chat.turn import Turns
from homing.core.template.record import Capabilities


def needed(record: Capabilities) -> bool:
    return not record.developer.whole


def apply(turns: Turns, record: Capabilities) -> Turns:
    if not any(turn.role == "developer" for turn in turns):
        return turns
    return [turn.as_role("system") if turn.role == "developer" else turn for turn in turns]
