"""`POST /v1/completions`: prompts as text or as token ids."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from homing.sim.errors import BadRequestError
from homing.sim.generation import Delta, Generation
from homing.sim.logprobs import Guess, prompt_guesses, prompt_logprobs, text_logprobs
from homing.sim.replica import Replica, new_id
from homing.sim.requests import CompletionRequest, parse
from homing.sim.serving import Collected, StreamingAnswer, final_usage, running_usage, sse, whole_usage
from homing.sim.shapes import TextChoice, TextChunk, TextCompletion
from homing.sim.tokenizer import TokenIds

MAX_PROMPTS = 256


def completions(replica: Replica, body: bytes, headers: Mapping[str, str]) -> StreamingAnswer:
    """Raises RequestError."""
    request = parse(body, CompletionRequest)
    replica.identity.check_model(request.model)
    request.check()
    prompts = completion_prompts(replica, request)
    generation = replica.generation(
        request,
        prompts,
        keep_guesses=0 if request.logprobs is None else max(request.logprobs, 1),
        reads_cache=not request.wants_prompt_logprobs,
        from_text=_is_text(request.prompt),
    )
    return TextAnswer(replica, request, generation, new_id("cmpl-", headers.get("x-request-id")))


def completion_prompts(replica: Replica, request: CompletionRequest) -> list[TokenIds]:
    """One a prompt: OpenAI allows a text, texts, ids, and lists of ids."""
    given = request.prompt
    if not given:
        raise BadRequestError("You must pass at least one prompt")
    if isinstance(given, str):
        return [replica.tokenizer.encode(given, add_special_tokens=request.add_special_tokens)]
    numbers = [item for item in given if isinstance(item, int)]
    if numbers and len(numbers) == len(given):
        return [replica.prompt_ids(numbers)]
    if len(given) > MAX_PROMPTS:
        raise BadRequestError(
            f"prompt list length {len(given)} exceeds the maximum allowed count of {MAX_PROMPTS}. To increase this "
            "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            "prompt",
        )
    prompts = []
    for item in given:
        if isinstance(item, int):
            raise BadRequestError("prompt must be texts or lists of token ids, not both", "prompt")
        if isinstance(item, str):
            prompts.append(replica.tokenizer.encode(item, add_special_tokens=request.add_special_tokens))
        else:
            prompts.append(replica.prompt_ids(item))
    return prompts


def _is_text(given: str | list[str | int | list[int]] | None) -> bool:
    return isinstance(given, str) or bool(given and isinstance(given[0], str))


class TextAnswer(StreamingAnswer):
    def __init__(self, replica: Replica, request: CompletionRequest, generation: Generation, answer_id: str) -> None:
        super().__init__(generation, stream=bool(request.stream))
        self._request = request
        self._options = request.stream_options
        self._id = answer_id
        self._created = int(time.time())
        self._tokenizer = replica.tokenizer
        self._identity = replica.identity
        self._offsets: dict[int, int] = {}  # by choice: how much of its text is out

    def whole(self, collected: list[Collected]) -> bytes:
        choices = []
        for c in collected:
            choice = self._choice(c.index, c.text, c.tokens, c.guesses, first=True)
            choice.finish_reason, choice.stop_reason = c.finish_reason, c.stop_reason
            choice.routed_experts = choice.prompt_logprobs = None
            if self._request.wants_prompt_logprobs:
                choice.prompt_logprobs = prompt_logprobs(self._tokenizer, self._prompt(c.index))
            choices.append(choice)
        return msgspec.json.encode(
            TextCompletion(
                id=self._id,
                created=self._created,
                model=self._identity.model,
                choices=choices,
                system_fingerprint=self._identity.fingerprint,
                usage=whole_usage(self.generation, tells_created=False),
            )
        )

    def events(self, delta: Delta) -> Iterator[bytes]:
        first = delta.index not in self._offsets
        choice = self._choice(delta.index, delta.text, delta.tokens, delta.guesses, first=first)
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason
        if not choice.text and delta.finish_reason is None and not choice.token_ids and not choice.logprobs:
            return
        chunk = self._chunk([choice])
        if self._options is not None and self._options.continuous_usage_stats:
            chunk.usage = running_usage(self.generation)
        if delta.finish_reason is not None and not (self._options and self._options.include_usage):
            chunk.system_fingerprint = self._identity.fingerprint
        yield sse(chunk)

    def _choice(self, index: int, text: str, tokens: TokenIds, guesses: Sequence[Guess], *, first: bool) -> TextChoice:
        """What came of one choice, and before the first of it, with `echo`, the prompt."""
        prompt = self._prompt(index)
        shown: Sequence[Guess | None] = guesses
        if not self._request.wants_output:
            text, tokens, shown = "", tokens[:0], ()
        choice = TextChoice(index, text)
        if self._request.return_token_ids:
            choice.token_ids = list(tokens)
            choice.prompt_token_ids = list(prompt) if first else None
        if first and self._request.echo:
            choice.text = self._tokenizer.decode(prompt) + text
            tokens, shown = prompt + tokens, [*prompt_guesses(prompt), *shown]
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + len(choice.text)
        if self._request.logprobs is not None:
            choice.logprobs = text_logprobs(self._tokenizer, tokens, shown, self._request.logprobs, offset)
        return choice

    def closing(self) -> Iterator[bytes]:
        if self._options is not None and self._options.include_usage:
            chunk = self._chunk([])
            chunk.usage = final_usage(self.generation, tells_created=False)
            chunk.system_fingerprint = self._identity.fingerprint
            yield sse(chunk)
        yield b"data: [DONE]\n\n"

    def _prompt(self, index: int) -> TokenIds:
        sequence = self.generation.choices[index].sequence
        return sequence.tokens[: sequence.prompt_tokens]

    def _chunk(self, choices: list[TextChoice]) -> TextChunk:
        return TextChunk(id=self._id, created=self._created, model=self._identity.model, choices=choices)
