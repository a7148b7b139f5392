"""The names of all repairs: the values of x-homing-repairs and of homing_repairs_total (docs/context.md)."""

from __future__ import annotations

from enum import StrEnum


class Repair(StrEnum):
    RESTORE_SYSTEM = "restore_system"  # the session's system texts, which this turn had lost, are back
    TRIM = "trim"  # the oldest turns are left out, since the context is full
    DEVELOPER = "developer"  # the role `developer` is `system` now
    TOOLS_AS_TEXT = "tools_as_text"  # calls and results of tools are written out
    SPLIT_CALLS = "split_calls"  # an answer's text and each of its calls are messages of their own
    FOLD_SYSTEM = "fold_system"  # system texts stand in the user's turns
    MERGE_SYSTEM = "merge_system"  # several system messages at the front are one
    LATER_SYSTEM = "later_system"  # a system text behind the first turn stands in a user's turn
    FIRST_USER = "first_user"  # an empty user's turn in front of an answer
    EMPTY_ANSWER = "empty_answer"  # an empty answer between a tool's result and a question
    MERGE_TURNS = "merge_turns"  # two turns in a row of one role are one
    TOOL_IDS = "tool_ids"  # ids of calls have nine letters or digits
    CONTENT_TEXT = "content_text"  # a list of texts is one text
    STRIP_THINK = "strip_think"  # think blocks of earlier answers are gone
