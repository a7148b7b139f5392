"""One turn of a conversation, whatever the shape of the request that it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from homing.core.chat.body import Members, encode
from homing.core.chat.text import Items, inside, is_nothing, items, joined, listed, part

NOTHING = msgspec.Raw(b"null")

_members = msgspec.json.Decoder(Members)


class Kind(StrEnum):
    """How a shape writes its turns."""

    CHAT = "chat"  # OpenAI's chat: `messages`
    BLOCKS = "blocks"  # Anthropic's: calls and results are blocks of a content
    ITEMS = "items"  # OpenAI's responses: calls and results are items of their own


SYSTEM_ROLES = frozenset(("system", "developer"))


@dataclass(frozen=True, slots=True)
class Turn:
    """`members` as the client sent them. `outside`: it stands in a member of the body, not in the list of turns.
    `bare`: an item that has no content (a call, a result, reasoning), so no text can join it."""

    role: str
    members: Members
    kind: Kind = Kind.CHAT
    outside: bool = False
    bare: bool = False

    @property
    def content(self) -> msgspec.Raw:
        return self.members.get("content", NOTHING)

    @property
    def is_system(self) -> bool:
        return self.role in SYSTEM_ROLES

    @property
    def calls(self) -> bool:
        """Whether it calls tools, by members of its own."""
        return len(self.members.get("tool_calls", b"")) > len(b"null")

    @property
    def brings_results(self) -> bool:
        """Whether it is one of Anthropic's with results of tools."""
        return bool(self._results()[0])

    def as_role(self, role: str) -> Turn:
        written = {} if self.outside else {"role": msgspec.Raw(msgspec.json.encode(role))}
        return replace(self, role=role, members={**self.members, **written})

    def with_content(self, content: msgspec.Raw) -> Turn:
        return self.with_member("content", content)

    def with_member(self, name: str, value: msgspec.Raw) -> Turn:
        return replace(self, members={**self.members, name: value})

    def detached(self) -> Turn:
        """The same, in memory of its own: what was read holds on to the whole body."""
        return replace(self, members={name: msgspec.Raw(bytes(value)) for name, value in self.members.items()})

    def without(self, member: str) -> Turn:
        return replace(self, members={k: v for k, v in self.members.items() if k != member})

    def followed_by(self, *contents: msgspec.Raw) -> Turn | None:
        """With `contents` behind its own. None where one is neither text nor a list."""
        whole = joined((self.content, *contents), self.text_type)
        return None if whole is None else self.with_content(whole)

    def preceded_by(self, content: msgspec.Raw) -> Turn | None:
        """With `content` before its own, but behind results of tools: these have to come first (Anthropic's rule)."""
        results, rest = self._results()
        whole = joined((content, rest), self.text_type)
        if whole is None or not results:
            return None if whole is None else self.with_content(whole)
        parts = items(whole)
        text = inside(whole)
        if parts is None:
            parts = [part(text or b"", self.text_type)]
        return self.with_content(listed([*results, *parts]))

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a tool, or begins with some."""
        return self.role == "tool" or (self.role == "user" and self.brings_results)

    def results_apart(self) -> tuple[Turn, Turn] | None:
        """Anthropic's results, and what else the user says in the same turn. None where there is only one of them."""
        results, rest = self._results()
        return (self.with_content(listed(results)), self.with_content(rest)) if results and items(rest) else None

    def result_followed_by(self, content: msgspec.Raw) -> Turn | None:
        """The result of a tool with `content` as a part of it. None where this is something else, or more."""
        if self.kind is Kind.BLOCKS:
            return self._last_result_followed_by(content)
        if self.role != "tool":
            return None
        if not self.bare:
            return self.followed_by(content)
        whole = _longer(self.members, "output", content, self.text_type)
        return None if whole is None else self.with_member("output", whole)

    def _last_result_followed_by(self, content: msgspec.Raw) -> Turn | None:
        results, rest = self._results()
        if not results or items(rest):
            return None
        try:
            block = _members.decode(results[-1])
        except msgspec.DecodeError:
            return None
        whole = _longer(block, "content", content, self.text_type)
        if whole is None:
            return None
        longer = msgspec.Raw(encode({**block, "content": whole}))
        return self.with_content(listed([*results[:-1], longer]))

    def _results(self) -> tuple[Items, msgspec.Raw]:
        if self.kind is not Kind.BLOCKS or b"tool_result" not in bytes(self.content):
            return [], self.content
        blocks = items(self.content) or []
        last = max((i for i, block in enumerate(blocks) if b'"tool_result"' in bytes(block)), default=-1)
        return (blocks[: last + 1], listed(blocks[last + 1 :])) if last >= 0 else ([], self.content)

    @property
    def text_type(self) -> str:
        if self.kind is not Kind.ITEMS:
            return "text"
        return "output_text" if self.role == "assistant" else "input_text"

    def new(self, role: str, content: msgspec.Raw) -> Turn:
        """A turn of its own in the same shape."""
        members: Members = {"role": msgspec.Raw(msgspec.json.encode(role)), "content": content}
        return Turn(role, members, self.kind)


def _longer(result: Members, member: str, content: msgspec.Raw, kind: str) -> msgspec.Raw | None:
    said = result.get(member, NOTHING)
    return None if is_nothing(said) else joined((said, content), kind)


Turns = Sequence[Turn]
