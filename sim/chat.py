"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from homing.sim.chat_template import RenderOptions
from homing.sim.generation import Delta, Generation
from homing.sim.logprobs import ChatLogprobs, Guess, chat_logprobs
from homing.sim.replica import Replica, new_id
from homing.sim.requests import ChatRequest, parse
from homing.sim.serving import Collected, StreamingAnswer, final_usage, running_usage, sse, whole_usage
from homing.sim.shapes import ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, DeltaMessage, Message
from homing.sim.tokenizer import TokenIds


def chat(replica: Replica, body: bytes, headers: Mapping[str, str]) -> StreamingAnswer:
    """Raises RequestError."""
    request = parse(body, ChatRequest)
    replica.identity.check_model(request.model)
    request.check()
    prompt = chat_prompt(replica, request)
    generation = replica.generation(request, [prompt], keep_guesses=request.guesses)
    return ChatAnswer(replica, request, generation, new_id("chatcmpl-", headers.get("x-request-id")))


def chat_prompt(replica: Replica, request: ChatRequest) -> TokenIds:
    options = RenderOptions(
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        tools=request.tools,
        template_kwargs=request.chat_template_kwargs,
    )
    text = replica.template.render(request.messages, options)
    return replica.tokenizer.encode(text, add_special_tokens=request.add_special_tokens)


class ChatAnswer(StreamingAnswer):
    def __init__(self, replica: Replica, request: ChatRequest, generation: Generation, answer_id: str) -> None:
        super().__init__(generation, stream=bool(request.stream))
        self._request = request
        self._options = request.stream_options
        self._id = answer_id
        self._created = int(time.time())
        self._tokenizer = replica.tokenizer
        self._model = replica.identity.model
        self._fingerprint = replica.identity.fingerprint
        self._greeted: set[int] = set()

    def whole(self, collected: list[Collected]) -> bytes:
        with_ids = self._request.return_token_ids
        prompt = self.generation.choices[0].sequence
        return msgspec.json.encode(
            ChatCompletion(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[
                    ChatChoice(
                        index=c.index,
                        message=Message(c.text),
                        logprobs=self._logprobs(c.guesses),
                        finish_reason=c.finish_reason,
                        stop_reason=c.stop_reason,
                        token_ids=list(c.tokens) if with_ids else None,
                    )
                    for c in collected
                ],
                system_fingerprint=self._fingerprint,
                usage=whole_usage(self.generation, tells_created=True),
                prompt_token_ids=list(prompt.tokens[: prompt.prompt_tokens]) if with_ids else None,
            )
        )

    def events(self, delta: Delta) -> Iterator[bytes]:
        if delta.index not in self._greeted:
            self._greeted.add(delta.index)
            opening = ChatChunkChoice(delta.index, DeltaMessage(role="assistant", content=""))
            opening.token_ids = msgspec.UNSET
            yield self._chunk(opening, opening=True)
        choice = ChatChunkChoice(delta.index, DeltaMessage(content=delta.text), finish_reason=delta.finish_reason)
        choice.logprobs = self._logprobs(delta.guesses)
        if self._request.return_token_ids:
            choice.token_ids = list(delta.tokens)
        if delta.finish_reason is not None:
            choice.stop_reason = delta.stop_reason
        if delta.text or delta.finish_reason is not None or delta.guesses or self._request.return_token_ids:
            yield self._chunk(choice)

    def closing(self) -> Iterator[bytes]:
        if self._options is not None and self._options.include_usage:
            yield self._chunk(None)
        yield b"data: [DONE]\n\n"

    def _logprobs(self, guesses: Sequence[Guess]) -> ChatLogprobs | None:
        if not self._request.logprobs:
            return None
        return chat_logprobs(self._tokenizer, guesses, self._request.top_logprobs or 0)

    def _chunk(self, choice: ChatChunkChoice | None, *, opening: bool = False) -> bytes:
        """`choice` is None in the usage that ends a stream."""
        options = self._options
        chunk = ChatChunk(id=self._id, created=self._created, model=self._model, choices=[choice] if choice else [])
        if choice is None:
            chunk.usage = final_usage(self.generation, tells_created=True)
        elif options is not None and options.continuous_usage_stats:
            chunk.usage = running_usage(self.generation)
            chunk.usage.completion_tokens_details = None
        if choice is None or (choice.finish_reason is not None and not (options and options.include_usage)):
            chunk.system_fingerprint = self._fingerprint
        if opening:
            prompt = self.generation.choices[0].sequence
            chunk.prompt_text = None
            chunk.prompt_token_ids = None
            if self._request.return_token_ids:
                chunk.prompt_token_ids = list(prompt.tokens[: prompt.prompt_tokens])
        return sse(chunk)
