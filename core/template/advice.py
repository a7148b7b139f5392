"""What operators should know of a template, in plain words. Empty for one that keeps everything and stays as it is."""

from __future__ import annotations

from homing.core.template.record import Capabilities, Fate, Think, ToolIds

_SYSTEM = {
    Fate.MOVES: "the system text moves every turn: the prefix cache will not hit",
    Fate.DROPPED: "system messages vanish",
    Fate.REFUSED: "system messages are refused",
}
_SYSTEMS = {
    Fate.FIRST_ONLY: "of several system messages only the first arrives",
    Fate.LAST_ONLY: "of several system messages only the last arrives",
    Fate.DROPPED: "of several system messages none arrives",
    Fate.REFUSED: "a second system message is refused",
}
_LATER = {
    Fate.MERGED: "a system message later in the conversation is put elsewhere: the prefix cache misses once",
    Fate.MOVES: "a system message later in the conversation moves every turn: the prefix cache will not hit",
    Fate.FIRST_ONLY: "a system message later in the conversation vanishes",
    Fate.LAST_ONLY: "a system message later in the conversation takes the place of the first, which vanishes",
    Fate.DROPPED: "a system message later in the conversation makes all of them vanish",
    Fate.REFUSED: "a system message later in the conversation is refused",
}
_DEVELOPER = {
    Fate.MOVES: "the text of developer messages moves every turn: the prefix cache will not hit",
    Fate.DROPPED: "developer messages vanish",
    Fate.REFUSED: "developer messages are refused",
}
_LISTS = {
    Fate.FIRST_ONLY: "of a content given as a list of parts only the first may arrive",
    Fate.LAST_ONLY: "of a content given as a list of parts only the last may arrive",
    Fate.DROPPED: "a content given as a list of parts may not arrive as text",
    Fate.REFUSED: "a content given as a list of parts may be refused",
}


def warnings(record: Capabilities) -> tuple[str, ...]:
    """One line each, the gravest first."""
    lines = [
        _SYSTEM.get(record.system),
        None if record.system is Fate.REFUSED else _SYSTEMS.get(record.systems),
        None if record.system is Fate.REFUSED else _LATER.get(record.later_system),
        _DEVELOPER.get(record.developer),
        _LISTS.get(record.content_lists),
        *_of_tools(record),
        *_of_turns(record),
        *_of_the_cache(record),
    ]
    return tuple(line for line in lines if line is not None)


def _of_tools(record: Capabilities) -> tuple[str | None, ...]:
    if not (record.tool.whole and record.tool_calls.whole):
        what = "refused" if Fate.REFUSED in (record.tool, record.tool_calls) else "lost"
        return (f"tool calls or their results are {what}: not a model for tools",)
    parallel = {Fate.REFUSED: "refused", Fate.KEPT: None}.get(record.parallel_calls, "lost in part")
    return (
        None
        if record.tool_calls_with_content.whole
        else "of a message with text and tool calls one of the two is lost",
        f"several tool calls in one message are {parallel}" if parallel else None,
        "ids of tool calls must have nine letters or digits" if record.tool_ids is ToolIds.NINE else None,
    )


def _of_turns(record: Capabilities) -> tuple[str | None, ...]:
    return (
        "user and assistant turns must alternate" if record.alternates else None,
        "a conversation that the assistant begins is refused" if record.user_first and not record.alternates else None,
        "without a system message the template puts in one of its own" if record.default_system else None,
    )


def _of_the_cache(record: Capabilities) -> tuple[str | None, ...]:
    dated = "today's date is in the prompt: every prefix is cold once a day" if record.dated else None
    if not record.stable_history:  # a text that moves was told already
        moves = Fate.MOVES in (record.system, record.developer)
        return (dated, None if moves else "earlier turns change with every turn: the prefix cache will not hit")
    thinking = "are cut when the next question comes" if record.think is not Think.KEPT else "change"
    return (
        dated,
        None
        if record.stable_tools
        else "rounds of tool calls change when the next question comes: the cache misses them",
        None if record.stable_think else f"earlier answers' think blocks {thinking}: the cache misses from there on",
    )
