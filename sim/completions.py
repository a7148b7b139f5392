"""`POST /v1/completions`: prompts as text or as token ids."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import msgspec

from homing.sim.errors import BadRequestError
from homing.sim.generation import Delta, Generation
from homing.sim.replica import Replica, new_id
from homing.sim.requests import CompletionRequest, parse
from homing.sim.serving import Answer, Collected, sse, usage_of
from homing.sim.shapes import TextChoice, TextCompletion, Usage
from homing.sim.tokenizer import TokenIds

MAX_PROMPTS = 256


def completions(replica: Replica, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Raises RequestError."""
    request = parse(body, CompletionRequest)
    replica.identity.check_model(request.model)
    request.check()
    prompts = completion_prompts(replica, request)
    reads_cache = not request.echo and request.prompt_logprobs is None
    generation = replica.generation(request, prompts, reads_cache=reads_cache)
    return TextAnswer(replica, request, generation, new_id("cmpl", headers.get("x-request-id")))


def completion_prompts(replica: Replica, request: CompletionRequest) -> list[TokenIds]:
    """One a prompt: OpenAI allows a text, texts, ids, and lists of ids."""
    given = request.prompt
    if isinstance(given, str):
        return [replica.tokenizer.encode(given)]
    numbers = [item for item in given if isinstance(item, int)]
    if numbers and len(numbers) == len(given):
        return [replica.prompt_ids(numbers)]
    if len(given) > MAX_PROMPTS:
        raise BadRequestError(f"at most {MAX_PROMPTS} prompts", "prompt")
    prompts = []
    for item in given:
        if isinstance(item, int):
            raise BadRequestError("prompt must be texts or lists of token ids, not both", "prompt")
        prompts.append(replica.tokenizer.encode(item) if isinstance(item, str) else replica.prompt_ids(item))
    if not prompts:
        raise BadRequestError("The decoder prompt cannot be empty", "prompt")
    return prompts


class TextAnswer(Answer):
    def __init__(self, replica: Replica, request: CompletionRequest, generation: Generation, answer_id: str) -> None:
        super().__init__(generation, stream=bool(request.stream))
        self._request = request
        self._options = request.stream_options
        self._id = answer_id
        self._created = int(time.time())
        self._tokenizer = replica.tokenizer
        self._identity = replica.identity
        self._opened: set[int] = set()

    def whole(self, collected: list[Collected]) -> bytes:
        choices = []
        for c in collected:
            prompt = self._prompt(c.index)
            text = self._tokenizer.decode(prompt) + c.text if self._request.echo else c.text
            choice = TextChoice(c.index, text, finish_reason=c.finish_reason, stop_reason=c.stop_reason)
            if self._request.return_token_ids:
                choice.token_ids = list(c.tokens)
                choice.prompt_token_ids = list(prompt)
            choices.append(choice)
        return msgspec.json.encode(self._completion(choices, usage_of(self.generation)))

    def events(self, delta: Delta) -> Iterator[bytes]:
        first = delta.index not in self._opened
        self._opened.add(delta.index)
        prompt = self._prompt(delta.index) if first else None
        text = delta.text
        if prompt is not None and self._request.echo:
            text = self._tokenizer.decode(prompt) + text
        if not text and delta.finish_reason is None and not self._request.return_token_ids:
            return
        choice = TextChoice(delta.index, text, finish_reason=delta.finish_reason, stop_reason=delta.stop_reason)
        if self._request.return_token_ids:
            choice.token_ids = list(delta.tokens)
            choice.prompt_token_ids = None if prompt is None else list(prompt)
        chunk = self._completion([choice])
        if self._options is not None and self._options.continuous_usage_stats:
            chunk.usage = usage_of(self.generation)
        yield sse(chunk)

    def closing(self) -> Iterator[bytes]:
        if self._options is not None and self._options.include_usage:
            yield sse(self._completion([], usage_of(self.generation)))
        yield b"data: [DONE]\n\n"

    def _prompt(self, index: int) -> TokenIds:
        sequence = self.generation.choices[index].sequence
        return sequence.tokens[: sequence.prompt_tokens]

    def _completion(self, choices: list[TextChoice], usage: Usage | None = None) -> TextCompletion:
        completion = TextCompletion(
            id=self._id,
            created=self._created,
            model=self._identity.model,
            choices=choices,
            system_fingerprint=self._identity.fingerprint,
        )
        if usage is not None:
            completion.usage = usage
        return completion
