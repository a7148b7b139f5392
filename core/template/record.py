"""What a chat template does to messages, as repair and the operators need to know it.

Made by probing (`probe`), carried to the pickers with the pool, shown by `homing check`, the API and the page.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Fate(StrEnum):
    """What becomes of a message, or of its text, in the rendered prompt."""

    KEPT = "kept"  # all of the text, where it stands
    MERGED = "merged"  # all of the text, in another place that stays the same over the turns
    MOVES = "moves"  # all of the text, in another place with every turn: the prefix cache will not hit
    FIRST_ONLY = "first_only"  # of several the first; the others are lost without a word
    LAST_ONLY = "last_only"  # of several the last
    DROPPED = "dropped"  # lost without a word
    REFUSED = "refused"  # the template raises an error: the engine answers 400

    @property
    def whole(self) -> bool:
        """Whether every text arrives."""
        return self in (Fate.KEPT, Fate.MERGED, Fate.MOVES)


class Think(StrEnum):
    """What becomes of the think blocks of earlier answers."""

    KEPT = "kept"
    STRIPPED = "stripped"
    REPLACED = "replaced"  # by an empty block


class ToolIds(StrEnum):
    """Which ids of tool calls the template takes."""

    ANY = "any"
    NINE = "nine"  # nine letters or digits (Mistral)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One template's record. The defaults are those of a template that leaves everything as it is (ChatML)."""

    system: Fate = Fate.KEPT
    """One system message at the front."""
    systems: Fate = Fate.KEPT
    """Several at the front."""
    later_system: Fate = Fate.KEPT
    """One behind the first user turn."""
    developer: Fate = Fate.KEPT
    """One message of the role `developer` at the front."""
    alternates: bool = False
    """User and assistant turns must alternate, or the template refuses."""
    user_first: bool = False
    """The first turn that is not a system message must be the user's."""
    tool: Fate = Fate.KEPT
    """The result of a tool, in a message of the role `tool`."""
    tool_calls: Fate = Fate.KEPT
    """Calls in an assistant's message without content."""
    tool_calls_with_content: Fate = Fate.KEPT
    parallel_calls: Fate = Fate.KEPT
    """Two calls in one message, and their two results."""
    tool_ids: ToolIds = ToolIds.ANY
    content_lists: Fate = Fate.KEPT
    """Text given as a list of parts."""
    trims: bool = False
    """White space at the ends of contents is cut."""
    default_system: bool = False
    """A system text of the template's own where the request has none."""
    think: Think = Think.KEPT
    dated: bool = False
    """The prompt has today's date in it: every cached prefix is cold once a day."""
    stable: bool = True
    """Turn N's prompt is a byte prefix of turn N+1's, for plain answers."""
    stable_history: bool = True
    """The same but for what the template appends for the answer to begin with: the cache misses one block at most."""
    stable_tools: bool = True
    """The same as `stable_history`, over rounds of tool calls."""
    stable_think: bool = True
    """The same as `stable_history`, for answers with think blocks, over plain turns and rounds of tool calls."""
