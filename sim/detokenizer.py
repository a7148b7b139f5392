"""Tokens to text as they come: no half characters, and nothing that may be the beginning of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from homing.sim.sequence import Sampler
from homing.sim.tokenizer import Tokenizer


class TextStream:
    """The text of one choice. After `stopped` is set, nothing more comes."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...] = ()) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = stops
        self._hold = max((len(stop) for stop in stops), default=1) - 1
        self._held = ""
        self.stopped: str | None = None  # the stop string that was met

    def push(self, tokens: Iterable[int], *, last: bool = False) -> str:
        """The text that is certain now. `last`: give everything, no token follows."""
        if self.stopped is not None:
            return ""
        text = self._held + self._decoder.decode(b"".join(map(self._token_bytes, tokens)), last)
        if not self._stops:
            return text
        met = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if met:
            at, self.stopped = min(met)
            return text[:at]
        certain = len(text) if last else max(len(text) - self._hold, 0)
        self._held = text[certain:]
        return text[:certain]


class StopWatch:
    """A sampler that ends with the token that completes a stop string, whoever reads the text, and when."""

    def __init__(self, sampler: Sampler, text: TextStream) -> None:
        self._sampler = sampler
        self._text = text

    @property
    def stopped(self) -> bool:
        return self._text.stopped is not None

    def take(self) -> int:
        token = self._sampler.take()
        self._text.push((token,))
        return token
