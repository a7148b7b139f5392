"""The three shapes of a chat request: where its turns stand in the body.

OpenAI's `/v1/chat/completions` (`messages`), Anthropic's `/v1/messages` (`messages`, and `system` outside of them),
OpenAI's `/v1/responses` (`input`, and `instructions` outside of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from homing.core.chat.body import Members
from homing.core.chat.text import begins, is_nothing, items, quoted, texts
from homing.core.chat.turn import Kind, Turn, Turns

_turns = msgspec.json.Decoder(list[Members])
_role = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class Shape:
    """`turns`: the member with the list of turns. `outside`: the member with a system text beside it, if any."""

    path: str
    kind: Kind
    turns: str
    outside: str | None = None

    def read(self, body: Members) -> list[Turn] | None:
        """The conversation, the text outside first. None where the body has none of this shape: nobody but the engine
        can say what is wrong with it."""
        raw = body.get(self.turns)
        if raw is None:
            return None
        first: list[Turn] = []
        if self.outside and (system := body.get(self.outside)) is not None and not is_nothing(system):
            first = [Turn("system", {"content": system}, self.kind, outside=True)]
        if self.kind is Kind.ITEMS and begins(raw, b'"'):
            user = {"role": msgspec.Raw(b'"user"'), "content": raw}
            return [*first, Turn("user", user, self.kind)]
        try:
            return [*first, *map(self._turn, _turns.decode(raw))]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def write(self, body: Members, turns: Turns) -> Members:
        """The body with other turns; all other members as they are."""
        written = dict(body)
        inside = [turn.members for turn in turns if not turn.outside]
        written[self.turns] = msgspec.Raw(msgspec.json.encode(inside))
        if self.outside is not None:
            first = next((turn for turn in turns if turn.outside), None)
            written.pop(self.outside, None)
            if first is not None:
                written[self.outside] = self._outside(first.content)
        return written

    def _outside(self, content: msgspec.Raw) -> msgspec.Raw:
        """`instructions` are a text, never a list."""
        if self.kind is Kind.ITEMS and items(content) is not None and (said := texts(content)) is not None:
            return quoted(b"".join(said))
        return content

    def _turn(self, members: Members) -> Turn:
        role = members.get("role")
        if role is not None:
            return Turn(_role.decode(role), members, self.kind)
        if self.kind is Kind.ITEMS:
            kind = _role.decode(members.get("type", b'""'))
            return Turn("tool" if kind.endswith("_output") else "assistant", members, self.kind, bare=True)
        raise msgspec.ValidationError("a message without a role")


CHAT = Shape("/v1/chat/completions", Kind.CHAT, "messages")
MESSAGES = Shape("/v1/messages", Kind.BLOCKS, "messages", "system")
RESPONSES = Shape("/v1/responses", Kind.ITEMS, "input", "instructions")


def shape_of(path: bytes) -> Shape | None:
    """The shape of what is sent to `path`, whatever stands before it. None for other paths."""
    text = path.partition(b"?")[0]
    return next((s for s in (CHAT, MESSAGES, RESPONSES) if text.endswith(s.path.encode())), None)
