"""`POST /v1/responses`, with `previous_response_id`, and `GET /v1/responses/{id}`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import msgspec
from starlette.responses import Response

from homing.sim import response_shapes as shapes
from homing.sim.chat_template import RenderOptions
from homing.sim.conversations import Conversation, Message
from homing.sim.errors import BadRequestError, RequestError
from homing.sim.generation import Delta, Generation
from homing.sim.replica import Replica, new_id
from homing.sim.requests import DEFAULT_MAX_TOKENS, Sampling, parse
from homing.sim.sequence import FinishReason
from homing.sim.serving import Collected, StreamingAnswer, named_sse

Items = list[dict[str, object]]


class ResponsesRequest(Sampling, kw_only=True):
    input: str | Items
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    store: bool = True

    @property
    def output_limit(self) -> int | None:
        return self.max_output_tokens

    @property
    def output_limit_name(self) -> str:
        return "max_output_tokens"


class UnknownResponseError(RequestError):
    status = 404
    type = "invalid_request_error"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found.", "response_id")


def responses(replica: Replica, body: bytes, headers: Mapping[str, str]) -> ResponsesAnswer:
    """Raises RequestError."""
    request = parse(body, ResponsesRequest)
    replica.identity.check_model(request.model)
    request.check()
    if request.previous_response_id is None:
        history: tuple[Message, ...] = ()
    else:
        history = _conversation(replica, request.previous_response_id).messages
    messages: list[Message] = [*history, *_messages(request.input)]
    # Instructions are of one response: the next one brings its own.
    system: list[Message] = [{"role": "system", "content": request.instructions}] if request.instructions else []
    text = replica.template.render([*system, *messages], RenderOptions())
    generation = replica.generation(request, [replica.tokenizer.encode(text, add_special_tokens=False)])
    return ResponsesAnswer(replica, request, generation, messages)


def stored_response(replica: Replica, response_id: str) -> Response:
    """Raises RequestError."""
    return Response(_conversation(replica, response_id).response, media_type="application/json")


def _conversation(replica: Replica, response_id: str) -> Conversation:
    found = replica.conversations.get(response_id)
    if found is None:
        raise UnknownResponseError(response_id)
    return found


def _messages(given: str | Items) -> list[Message]:
    """Input items as chat messages. Items that only a real model makes use of are left out."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Message] = []
    for item in given:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")})
        elif kind != "reasoning":
            raise BadRequestError(f"Unsupported input item type: {kind}", "input")
    return messages


class ResponsesAnswer(StreamingAnswer):
    def __init__(
        self, replica: Replica, request: ResponsesRequest, generation: Generation, messages: list[Message]
    ) -> None:
        super().__init__(generation, stream=bool(request.stream))
        self._replica = replica
        self._request = request
        self._messages = messages
        self._id = new_id("resp_")
        self._item_id = new_id("msg_")
        self._created = int(time.time())
        self._text = ""
        self._finish_reason: str | None = None
        self._events = 0

    def whole(self, collected: list[Collected]) -> bytes:
        self._text, self._finish_reason = collected[0].text, collected[0].finish_reason
        response = msgspec.json.encode(self._response())
        self._remember(response)
        return response

    def events(self, delta: Delta) -> Iterator[bytes]:
        if self._events == 0:
            yield from self._opening()
        self._finish_reason = delta.finish_reason
        if delta.text:
            self._text += delta.text
            yield self._event(shapes.TextDelta(sequence_number=0, item_id=self._item_id, delta=delta.text))

    def closing(self) -> Iterator[bytes]:
        part, item = shapes.OutputText(self._text), self._item()
        yield self._event(shapes.TextDone(sequence_number=0, item_id=self._item_id, text=self._text))
        yield self._event(shapes.PartDone(sequence_number=0, item_id=self._item_id, part=part))
        yield self._event(shapes.ItemDone(sequence_number=0, item=item))
        response = self._response()
        self._remember(msgspec.json.encode(response))
        yield self._event(shapes.Completed(sequence_number=0, response=response))

    def _opening(self) -> Iterator[bytes]:
        empty = self._response()
        empty.status, empty.output, empty.usage, empty.incomplete_details = "in_progress", [], None, None
        item = shapes.OutputMessage(self._item_id, [], "in_progress")
        yield self._event(shapes.Created(sequence_number=0, response=empty))
        yield self._event(shapes.InProgress(sequence_number=0, response=empty))
        yield self._event(shapes.ItemAdded(sequence_number=0, item=item))
        yield self._event(
            shapes.PartAdded(sequence_number=0, item_id=self._item_id, part=shapes.OutputText("", logprobs=()))
        )

    def _event(self, event: shapes.Event) -> bytes:
        event.sequence_number = self._events
        self._events += 1
        return named_sse(str(event.__struct_config__.tag), event)

    def _item(self) -> shapes.OutputMessage:
        return shapes.OutputMessage(self._item_id, [shapes.OutputText(self._text)], "completed")

    def _response(self) -> shapes.ResponseObject:
        cut = self._finish_reason == FinishReason.LENGTH
        prompt, output = self.generation.prompt_tokens, self.generation.output_tokens
        sequence = self.generation.reported(streamed=False)
        details = shapes.InputTokensDetails(sequence.cached_tokens, sequence.created_tokens)
        return shapes.ResponseObject(
            id=self._id,
            created_at=self._created,
            status="incomplete" if cut else "completed",
            model=self._replica.identity.model,
            output=[self._item()],
            instructions=self._request.instructions,
            previous_response_id=self._request.previous_response_id,
            max_output_tokens=self._request.max_output_tokens or DEFAULT_MAX_TOKENS,
            incomplete_details=shapes.IncompleteDetails("max_output_tokens") if cut else None,
            usage=shapes.ResponseUsage(prompt, details, output, shapes.OutputTokensDetails(), prompt + output),
        )

    def _remember(self, response: bytes) -> None:
        if self._request.store:
            answer = {"role": "assistant", "content": self._text}
            self._replica.conversations.put(self._id, Conversation((*self._messages, answer), response))
