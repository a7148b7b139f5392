"""The engine's other endpoints, over HTTP."""

import base64
import json
import math
import struct

import httpx
import openai
import pytest


@pytest.fixture
def sim(quick_sim):
    return quick_sim


@pytest.fixture
def post(sim):
    def post(path, status=200, **fields):
        response = httpx.post(sim.url + path, json=fields, timeout=20)
        assert response.status_code == status, response.text
        return response.json()

    return post


def named_events(text):
    """(event, data) of each server-sent event."""
    parts = [part.split("\n") for part in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


# Tokens


def test_tokenize_gives_the_ids_that_a_completion_uses(post):
    tokens = post("/tokenize", prompt="once upon a time", return_token_strs=True)
    completion = post("/v1/completions", prompt="once upon a time", return_token_ids=True, max_tokens=1)
    assert tokens["tokens"] == completion["choices"][0]["prompt_token_ids"]
    assert tokens["token_strs"] == ["once", " upo", "n", " a", " tim", "e"]
    assert (tokens["count"], tokens["max_model_len"]) == (6, 4194304)
    assert post("/detokenize", tokens=tokens["tokens"]) == {"prompt": "once upon a time"}


def test_tokenize_of_messages_gives_the_ids_of_the_chat(post):
    messages = [{"role": "user", "content": "hello"}]
    chat = post("/v1/chat/completions", messages=messages, return_token_ids=True, max_tokens=1)
    assert post("/tokenize", messages=messages)["tokens"] == chat["prompt_token_ids"]
    shorter = post("/tokenize", messages=messages, add_generation_prompt=False)["tokens"]
    assert shorter == chat["prompt_token_ids"][: len(shorter)]


def test_an_answer_handed_over_as_ids_is_continued_from_the_cache(post):
    messages = [{"role": "user", "content": "tell me a long story " * 10}]
    whole = post("/v1/chat/completions", messages=messages, max_tokens=60, return_token_ids=True)
    ids = whole["prompt_token_ids"] + whole["choices"][0]["token_ids"][:40]
    rest = post("/v1/completions", prompt=ids, max_tokens=20, add_special_tokens=False, return_token_ids=True)
    assert rest["choices"][0]["token_ids"] == whole["choices"][0]["token_ids"][40:]
    assert rest["usage"]["prompt_tokens_details"]["cached_tokens"] == (len(ids) - 1) // 16 * 16


def test_a_tokenizer_that_adds_a_bos_doubles_it_where_one_is_there(start_sim):
    sim = start_sim("--add-bos-token")

    def count(**fields):
        return httpx.post(sim.url + "/tokenize", json=fields).json()["count"]

    assert count(prompt="once") == 2
    assert count(prompt="once", add_special_tokens=False) == 1
    assert count(prompt="<|begin_of_text|>once") == 3
    messages = [{"role": "user", "content": "once"}]
    assert count(messages=messages, add_special_tokens=True) == count(messages=messages) + 1


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/tokenize", {}, "Field required"),
        ("/detokenize", {"tokens": ["a"]}, "'loc': 'body.tokens.0', 'msg': 'Input should be a valid integer, unable"),
        ("/detokenize", {"tokens": [1, -1]}, "'loc': 'body.tokens.1', 'msg': 'Input should be greater than or equal"),
        ("/v1/completions", {"prompt": [1, 1 << 31]}, "Token id 2147483648 is out of vocabulary"),
        ("/v1/completions", {"prompt": ""}, "Either prompt or prompt_embeds must be provided and non-empty."),
        ("/v1/completions", {"prompt": []}, "You must pass at least one prompt"),
        ("/v1/completions", {"prompt": ["a", 1]}, "prompt must be texts or lists of token ids, not both"),
        ("/v1/completions", {}, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"),
        ("/v1/completions", {"prompt": "a", "logprobs": 21}, "Requested sample logprobs of 21, which is greater than"),
        ("/v1/completions", {"prompt": "a", "temperature": 2.5}, "temperature must be in [0, 2], got 2.5."),
        ("/v1/completions", {"prompt": "a", "top_p": 0}, "top_p must be in (0, 1], got 0.0."),
        ("/v1/completions", {"prompt": "a", "frequency_penalty": 3}, "frequency_penalty must be in [-2, 2], got 3.0."),
        ("/v1/completions", {"prompt": "a", "n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2"),
        ("/v1/completions", {"prompt": "a", "cache_salt": "a/b"}, "must not contain '@', '/', '\\\\', or NUL."),
        ("/v1/completions", {"prompt": "a", "cache_salt": "s" * 129}, "must be at most 128 characters"),
        ("/v1/chat/completions", {"messages": []}, "Cannot apply chat template to an empty conversation."),
        ("/v1/completions", {"prompt": "a", "stream": True, "prompt_logprobs": 1}, "not available when `stream=True`"),
        ("/v1/chat/completions", {"messages": [], "top_logprobs": 2}, "`logprobs` must be set to true"),
        ("/v1/embeddings", {"input": []}, "the number of inputs must be between 1 and 2048, got 0"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions must be between 1 and 4096, got 0."),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "Input lengths must be either 1:1, 1:N or N:N"),
        ("/v1/responses", {"input": [{"type": "image"}]}, "Unsupported input item type: image"),
    ],
)
def test_bad_input_is_a_400_that_says_what_is_wrong(post, path, fields, message):
    assert message in post(path, 400, **fields)["error"]["message"]


# Log probabilities


def test_chat_logprobs_name_each_token_and_its_rivals(post):
    messages = [{"role": "user", "content": "x"}]
    answer = post("/v1/chat/completions", messages=messages, max_tokens=4, logprobs=True, top_logprobs=3)
    (choice,) = answer["choices"]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert [entry["token"], entry["logprob"]] == list(entry["top_logprobs"][0].values())[:2]
        assert len(entry["top_logprobs"]) == 3


def test_streamed_logprobs_are_those_of_the_whole_answer(sim, post):
    request = {"prompt": "once", "max_tokens": 5, "logprobs": 2}
    whole = post("/v1/completions", **request)["choices"][0]
    text = httpx.post(sim.url + "/v1/completions", json=request | {"stream": True}).text
    chunks = [json.loads(line[6:])["choices"][0] for line in text.split("\n\n") if line.startswith("data: {")]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert [x for chunk in chunks for x in chunk["logprobs"][name]] == whole["logprobs"][name]
    assert [len(top) for top in whole["logprobs"]["top_logprobs"]] == [2] * 5
    assert whole["logprobs"]["text_offset"] == [0, 4, 8, 12, 16]


def test_echo_scores_the_prompt_and_reads_no_cache(post):
    prompt = "once upon a time there was a very long prompt of more than one block"
    post("/v1/completions", prompt=prompt, max_tokens=1)
    answer = post("/v1/completions", prompt=prompt, max_tokens=0, echo=True, logprobs=0, return_token_ids=True)
    (choice,) = answer["choices"]
    assert choice["text"] == prompt
    assert choice["token_ids"] == []
    assert "".join(choice["logprobs"]["tokens"]) == prompt
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(p < 0 for p in choice["logprobs"]["token_logprobs"][1:])
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_prompt_logprobs_tell_of_every_prompt_token_but_the_first(post):
    (choice,) = post("/v1/completions", prompt="once upon", max_tokens=1, prompt_logprobs=1)["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert [token["decoded_token"] for each in others for token in each.values()] == [" upo", "n"]


# Responses


def test_a_response_continues_another_by_its_id_and_from_the_cache(post):
    first = post("/v1/responses", input="word " * 100, max_output_tokens=20)
    assert first["status"] == "incomplete"
    assert first["incomplete_details"] == {"reason": "max_output_tokens"}
    second = post("/v1/responses", input="go on", previous_response_id=first["id"], max_output_tokens=1)
    computed = first["usage"]["input_tokens"] + 19
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == computed // 16 * 16
    assert second["previous_response_id"] == first["id"]


def test_a_response_is_the_chat_of_the_same_messages(post):
    text = [{"type": "input_text", "text": "hello"}]
    response = post("/v1/responses", instructions="be kind", input=[{"role": "user", "content": text}])
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    chat = post("/v1/chat/completions", messages=messages)
    assert response["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_a_stored_response_can_be_had_again(sim, post):
    response = post("/v1/responses", input="hello")
    assert httpx.get(f"{sim.url}/v1/responses/{response['id']}").json() == response


def test_one_that_was_not_stored_or_never_was_is_not_found(post):
    gone = post("/v1/responses", input="hello", store=False)["id"]
    for response_id in (gone, "resp_x"):
        error = post("/v1/responses", 404, input="go on", previous_response_id=response_id)["error"]
        assert error == {
            "message": f"Response with id '{response_id}' not found.",
            "type": "invalid_request_error",
            "param": "response_id",
            "code": 404,
        }


def test_a_streamed_response_tells_its_story_in_order_and_is_stored(sim, post):
    request = {"input": "hello", "stream": True, "max_output_tokens": 3}
    events = named_events(httpx.post(sim.url + "/v1/responses", json=request).text)
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["type"] for _, data in events] == [name for name, _ in events]
    assert [data["sequence_number"] for _, data in events] == list(range(11))
    response = events[-1][1]["response"]
    text = "".join(data["delta"] for name, data in events if name.endswith("text.delta"))
    assert response["output"][0]["content"][0]["text"] == text
    assert post("/v1/responses", input="go on", previous_response_id=response["id"])["status"] == "incomplete"


# Messages


def test_a_message_is_the_chat_of_the_same_messages(post):
    user = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    message = post("/v1/messages", model="m", system="be kind", messages=[user], max_tokens=5)
    chat_messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    chat = post("/v1/chat/completions", messages=chat_messages, max_tokens=5)
    assert message["content"] == [{"text": chat["choices"][0]["message"]["content"], "type": "text"}]
    assert (message["stop_reason"], message["type"], message["role"]) == ("max_tokens", "message", "assistant")
    usage, prompt_tokens = message["usage"], chat["usage"]["prompt_tokens"]
    told = (usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"])
    assert sum(told) == prompt_tokens
    counted = post("/v1/messages/count_tokens", system="be kind", messages=[user])
    assert counted == {"input_tokens": prompt_tokens, "context_management": {"original_input_tokens": prompt_tokens}}


def test_a_message_tells_apart_what_was_read_from_the_cache_written_to_it_and_neither(post):
    messages = [{"role": "user", "content": "some words to be remembered " * 5}]
    total = post("/v1/messages/count_tokens", messages=messages)["input_tokens"]
    post("/v1/messages", messages=messages, max_tokens=1)
    usage = post("/v1/messages", messages=messages, max_tokens=1)["usage"]
    read = (total - 1) // 16 * 16
    assert usage["cache_read_input_tokens"] == read
    assert usage["cache_creation_input_tokens"] == total // 16 * 16 - read
    assert usage["input_tokens"] == total - total // 16 * 16


def test_of_several_answers_the_last_ones_reuse_is_told(post):
    request = {"prompt": "a prompt of more than one block, for two answers to it", "n": 2, "max_tokens": 1}
    usage = post("/v1/completions", **request)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 16 * 16 > 0


def test_tool_use_and_its_result_are_part_of_the_prompt(post):
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "42"}
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    without = post("/v1/messages/count_tokens", messages=messages[:1])["input_tokens"]
    assert post("/v1/messages/count_tokens", messages=messages)["input_tokens"] > without


def test_a_streamed_message_has_the_events_in_order(sim):
    request = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "stream": True}
    events = named_events(httpx.post(sim.url + "/v1/messages", json=request).text)
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == 3


def test_errors_of_messages_have_anthropics_shape(post):
    error = post("/v1/messages", 404, model="x", messages=[], max_tokens=1)
    assert error == {
        "error": {"type": "NotFoundError", "message": "The model `x` does not exist. Valid aliases: m."},
        "type": "error",
    }
    malformed = post("/v1/messages", 400, messages=[{"role": "user", "content": 7}], max_tokens=1)
    assert malformed["error"]["param"] == "body.messages.0.content"


# Embeddings and ranks


def test_embeddings_are_of_length_one_and_alike_for_like_texts(post):
    texts = ["the cat sat on the mat", "the cat sat on the hat", "stock prices fell sharply"]
    answer = post("/v1/embeddings", input=texts)
    one, like, other = (each["embedding"] for each in answer["data"])
    assert math.isclose(sum(x * x for x in one), 1.0)

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert dot(one, like) > 0.5 > dot(one, other)
    assert answer["usage"]["completion_tokens"] == 0


def test_packed_embeddings_are_the_same_numbers(post):
    plain = post("/v1/embeddings", input="hello", dimensions=7)["data"][0]["embedding"]
    packed = post("/v1/embeddings", input="hello", dimensions=7, encoding_format="base64")["data"][0]["embedding"]
    assert struct.unpack("<7f", base64.b64decode(packed)) == pytest.approx(plain)
    tokens = post("/tokenize", prompt="hello")["tokens"]
    assert post("/v1/embeddings", input=[tokens], dimensions=7)["data"][0]["embedding"] == plain


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_puts_the_likest_document_first(post, path):
    documents = ["stock prices fell", {"text": "the cat sat on a mat"}, "dogs"]
    results = post(path, query="the cat on the mat", documents=documents, top_n=2)["results"]
    assert results[0]["index"] == 1
    assert len(results) == 2
    assert results[0]["document"] == {"text": "the cat sat on a mat"}
    assert 1 >= results[0]["relevance_score"] > results[1]["relevance_score"] >= 0


def test_score_compares_one_with_each(post):
    scores = [each["score"] for each in post("/score", text_1="the cat", text_2=["the cat", "a dog"])["data"]]
    assert math.isclose(scores[0], 1.0)
    assert scores[0] > scores[1]


def test_load_counts_what_runs_and_waits(start_sim):
    sim = start_sim("--ttft-ms", "60000", "--max-num-seqs", "1")
    request = {"prompt": ["a", "b", "c"], "stream": True}
    with httpx.stream("POST", sim.url + "/v1/completions", json=request):
        assert httpx.get(sim.url + "/load").json() == {"server_load": 3}
        assert sim.metric("vllm:num_requests_waiting") == 2


# Templates


def test_a_templates_own_error_is_a_400_in_its_words(start_sim, tmp_path):
    template = tmp_path / "strict.jinja"
    template.write_text("{{ raise_exception('Conversation roles must alternate') }}")
    sim = start_sim("--chat-template", str(template))
    response = httpx.post(sim.url + "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
    assert (response.status_code, response.json()) == (
        400,
        {
            "error": {
                "message": "Conversation roles must alternate",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
    )


# The unmodified client


def test_the_openai_client_is_served(sim):
    client = openai.OpenAI(base_url=sim.url + "/v1", api_key="x")
    chat = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], max_tokens=3)
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], max_tokens=3, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == chat.choices[0].message.content
    assert client.models.list().data[0].id == "m"
    first = client.responses.create(model="m", input="hello")
    with client.responses.stream(model="m", input="go on", previous_response_id=first.id) as events:
        assert [event.type for event in events][-1] == "response.completed"
    assert len(client.embeddings.create(model="m", input="hello").data[0].embedding) == 64


# Streams


def test_a_stream_interval_puts_so_many_tokens_into_an_event_after_the_first(start_sim):
    sim = start_sim("--stream-interval", "8", "--ttft-ms", "1", "--itl-ms", "1")
    asked = {"prompt": "once upon a time", "max_tokens": 21, "stream": True, "return_token_ids": True}
    text = httpx.post(sim.url + "/v1/completions", json=asked, timeout=20).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    sizes = [len(choice["token_ids"]) for event in events for choice in event["choices"]]
    assert sum(sizes) == 21
    assert sizes[0] < 8  # the first token waits for nobody
    assert min(sizes[1:-1], default=8) >= 8
