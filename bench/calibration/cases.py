"""Single requests to both engines: what they answer is compared by shape, what they refuse also by words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.calibration.conversations import FORCED_TOKEN

MODEL = "calibration"
TOKENS = 24  # enough that a stream has a middle, however late its reader is
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"

USER = {"role": "user", "content": "Tell me of the sea."}
LONG = {"role": "user", "content": "Tell me more of the sea. " * 120}
TOO_LONG = {"role": "user", "content": "sea " * 9000}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Tell me"}, {"type": "text", "text": "of the sea."}]}

Body = Mapping[str, object] | bytes


@dataclass(frozen=True, slots=True)
class Case:
    """A GET without a body, else a POST. `exact`: the whole body is compared, not only its shape."""

    name: str
    path: str
    body: Body | None = None
    exact: bool = False


def stop_case(answer: str) -> Case:
    """`answer` is the text of the token that answers are forced to."""
    return Case("chat, stop string", CHAT, _chat(stop=answer * 2))


def _chat(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [USER], "max_tokens": TOKENS, "allowed_token_ids": [FORCED_TOKEN], **fields}


def _text(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "prompt": "The sea is", "max_tokens": TOKENS, "allowed_token_ids": [FORCED_TOKEN], **fields}


def _responses(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "input": "Tell me of the sea.", "max_output_tokens": TOKENS, "ignore_eos": True, **fields}


def _messages(**fields: object) -> dict[str, object]:
    # Greedy: it has no way to ignore the end of the answer, which sampling may meet at once.
    return {"model": MODEL, "messages": [USER], "max_tokens": TOKENS, "temperature": 0, **fields}


_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
_EVERY_USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}

ANSWERS = (
    Case("models", "/v1/models"),
    Case("version", "/version"),
    Case("load", "/load"),
    Case("chat", CHAT, _chat()),
    Case("chat, seen before", CHAT, _chat(messages=[LONG])),
    Case("chat, seen before, again", CHAT, _chat(messages=[LONG])),
    Case("chat, two choices", CHAT, _chat(n=2)),
    Case("chat, two choices, seen before", CHAT, _chat(messages=[LONG], n=2)),
    Case("chat, token ids and log probabilities", CHAT, _chat(return_token_ids=True, logprobs=True, top_logprobs=2)),
    Case("chat, log probabilities without alternatives", CHAT, _chat(logprobs=True)),
    Case("chat, content in parts", CHAT, _chat(messages=[PARTS])),
    Case(
        "chat, nothing to continue",
        CHAT,
        _chat(
            messages=[USER, {"role": "assistant", "content": None}],
            add_generation_prompt=False,
            continue_final_message=True,
        ),
    ),
    Case("chat, no model", CHAT, {"messages": [USER], "max_tokens": 2}),
    Case("chat, max_completion_tokens", CHAT, {"messages": [USER], "max_completion_tokens": 2}),
    Case("chat, streamed", CHAT, _chat(stream=True)),
    Case("chat, streamed with usage", CHAT, _chat(**_USAGE)),
    Case("chat, streamed with usage in every chunk", CHAT, _chat(**_EVERY_USAGE)),
    Case("chat, streamed with ids", CHAT, _chat(**_USAGE, return_token_ids=True)),
    Case("chat, streamed with log probabilities", CHAT, _chat(stream=True, logprobs=True, top_logprobs=2)),
    Case("text", TEXT, _text()),
    Case("text, by token ids", TEXT, _text(prompt=[5, 6, 7], return_token_ids=True)),
    Case("text, two prompts", TEXT, _text(prompt=["The sea", "The sky"])),
    Case("text, two prompts of ids", TEXT, _text(prompt=[[5, 6], [7]])),
    Case("text, output cut to the context", TEXT, _text(prompt=[FORCED_TOKEN] * 8185, max_tokens=20)),
    Case("text, log probabilities", TEXT, _text(logprobs=2)),
    Case("text, echo", TEXT, _text(echo=True, logprobs=1)),
    Case("text, echo of the prompt alone", TEXT, _text(echo=True, logprobs=1, max_tokens=0)),
    Case("text, log probabilities of the prompt", TEXT, _text(prompt_logprobs=1)),
    Case("text, streamed", TEXT, _text(stream=True)),
    Case("text, streamed with usage", TEXT, _text(**_USAGE)),
    Case("text, streamed with usage in every chunk", TEXT, _text(**_EVERY_USAGE)),
    Case("text, streamed with ids and log probabilities", TEXT, _text(**_USAGE, return_token_ids=True, logprobs=2)),
    Case("tokenize a text", "/tokenize", {"model": MODEL, "prompt": "The sea, 🙂.", "return_token_strs": True}, True),
    Case("tokenize a chat", "/tokenize", {"model": MODEL, "messages": [USER]}, True),
    Case(
        "tokenize a chat to be continued",
        "/tokenize",
        {
            "messages": [USER, {"role": "assistant", "content": "The sea is "}],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
        True,
    ),
    Case("detokenize", "/detokenize", {"model": MODEL, "tokens": [1, 300, 301, 2]}, True),
    Case("responses", RESPONSES, _responses()),
    Case("responses, instructions and messages", RESPONSES, _responses(instructions="Be brief.", input=[USER])),
    Case("responses, streamed", RESPONSES, _responses(stream=True)),
    Case("messages", MESSAGES, _messages(system="Be brief.")),
    Case("messages, seen before", MESSAGES, _messages(messages=[LONG])),
    Case("messages, blocks", MESSAGES, _messages(messages=[PARTS])),
    Case("messages, streamed", MESSAGES, _messages(stream=True)),
    Case("messages, streamed, seen before", MESSAGES, _messages(messages=[LONG], stream=True)),
    Case("count tokens of messages", f"{MESSAGES}/count_tokens", {"model": MODEL, "messages": [USER]}, True),
)

REFUSALS = (
    Case("chat, wrong model", CHAT, _chat(model="other")),
    Case("text, wrong model", TEXT, _text(model="other")),
    Case("tokenize, wrong model", "/tokenize", {"model": "other", "prompt": "a"}),
    Case("responses, wrong model", RESPONSES, _responses(model="other")),
    Case("messages, wrong model", MESSAGES, _messages(model="other")),
    Case("chat, half a body", CHAT, b'{"messages": [{"role": "user"'),
    Case("chat, no JSON", CHAT, b"hello"),
    Case("chat, no body", CHAT, b""),
    Case("chat, a list", CHAT, b"[1, 2]"),
    Case("chat, no messages", CHAT, {"model": MODEL}),
    Case("chat, messages null", CHAT, _chat(messages=None)),
    Case("chat, messages a text", CHAT, _chat(messages="hello")),
    Case("chat, messages empty", CHAT, _chat(messages=[])),
    Case("chat, message without role", CHAT, _chat(messages=[{"content": "a"}])),
    Case("chat, content a number", CHAT, _chat(messages=[{"role": "user", "content": 7}])),
    Case("chat, unknown part", CHAT, _chat(messages=[{"role": "user", "content": [{"type": "odd", "odd": "a"}]}])),
    Case("chat, max_tokens a text", CHAT, _chat(max_tokens="many")),
    Case("chat, max_tokens a fraction", CHAT, _chat(max_tokens=1.5)),
    Case("chat, max_tokens 0", CHAT, _chat(max_tokens=0)),
    Case("chat, max_tokens negative", CHAT, _chat(max_tokens=-1)),
    Case("chat, n 0", CHAT, _chat(n=0)),
    Case("chat, n a text", CHAT, _chat(n="two")),
    Case("chat, stream a number", CHAT, _chat(stream=7)),
    Case("chat, temperature negative", CHAT, _chat(temperature=-1)),
    Case("chat, top_p above 1", CHAT, _chat(top_p=2)),
    Case("chat, stream options without stream", CHAT, _chat(stream_options={"include_usage": True})),
    Case("chat, top_logprobs without logprobs", CHAT, _chat(top_logprobs=2)),
    Case("chat, too many top_logprobs", CHAT, _chat(logprobs=True, top_logprobs=21)),
    Case("chat, salt empty", CHAT, _chat(cache_salt="")),
    Case("chat, salt a number", CHAT, _chat(cache_salt=7)),
    Case("chat, salt too long", CHAT, _chat(cache_salt="s" * 1025)),
    Case("chat, unknown role", CHAT, _chat(messages=[{"role": "wizard", "content": "a"}])),
    Case("chat, system message late", CHAT, _chat(messages=[USER, {"role": "system", "content": "a"}])),
    Case("chat, both continued and begun", CHAT, _chat(continue_final_message=True, add_generation_prompt=True)),
    Case("chat, prompt too long", CHAT, _chat(messages=[TOO_LONG])),
    Case("chat, streamed, prompt too long", CHAT, _chat(messages=[TOO_LONG], stream=True)),
    Case("chat, output too long", CHAT, _chat(max_tokens=100_000)),
    Case("chat, stop a number", CHAT, _chat(stop=7)),
    Case("text, no prompt", TEXT, {"model": MODEL}),
    Case("text, prompt empty", TEXT, _text(prompt="")),
    Case("text, prompt an empty list", TEXT, _text(prompt=[])),
    Case("text, prompt a number", TEXT, _text(prompt=7)),
    Case("text, prompt texts and ids", TEXT, _text(prompt=["a", 7])),
    Case("text, id out of the vocabulary", TEXT, _text(prompt=[5, 4_000_000])),
    Case("text, id negative", TEXT, _text(prompt=[5, -1])),
    Case("text, prompt too long", TEXT, _text(prompt="sea " * 9000)),
    Case("text, ids too long", TEXT, _text(prompt=[FORCED_TOKEN] * 9000)),
    Case("text, ids of exactly the limit", TEXT, _text(prompt=[FORCED_TOKEN] * 8192)),
    Case("text, too many log probabilities", TEXT, _text(logprobs=21)),
    Case("text, log probabilities negative", TEXT, _text(logprobs=-2)),
    Case("text, prompt's log probabilities streamed", TEXT, _text(prompt_logprobs=1, stream=True)),
    Case("tokenize, nothing", "/tokenize", {"model": MODEL}),
    Case("detokenize, no tokens", "/detokenize", {"model": MODEL}),
    Case("detokenize, id out of the vocabulary", "/detokenize", {"tokens": [4_000_000]}),
    Case("detokenize, texts", "/detokenize", {"tokens": ["a"]}),
    Case("responses, no input", RESPONSES, {"model": MODEL}),
    Case("responses, unknown previous", RESPONSES, _responses(previous_response_id="resp_0")),
    Case("responses, no id as previous", RESPONSES, _responses(previous_response_id="x")),
    Case("responses, get an unknown one", f"{RESPONSES}/resp_0"),
    Case("responses, get what is no id", f"{RESPONSES}/x"),
    Case("responses, prompt too long", RESPONSES, _responses(input="sea " * 9000)),
    Case("messages, no max_tokens", MESSAGES, {"model": MODEL, "messages": [USER]}),
    Case("messages, half a body", MESSAGES, b'{"messages": ['),
    Case("messages, prompt too long", MESSAGES, _messages(messages=[TOO_LONG])),
    Case("messages, content a number", MESSAGES, _messages(messages=[{"role": "user", "content": 7}])),
    Case("no such path", "/v1/nothing"),
    Case("no such path to post to", "/v1/nothing", {}),
    Case("get where only post is", CHAT),
    Case("post where only get is", "/v1/models", {}),
)
