"""`/v1/embeddings`, `/rerank` and `/score`: a prefill each, and no tokens."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Mapping

import msgspec

from homing.sim.errors import BadRequestError
from homing.sim.generation import Generation
from homing.sim.replica import Replica, new_id
from homing.sim.requests import Sampling, parse
from homing.sim.serving import Answer, Collected
from homing.sim.tokenizer import TokenIds
from homing.sim.vectors import DIMENSIONS, similarity, vector

MAX_INPUTS = 2048
MAX_DIMENSIONS = 4096


class PoolingUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: None = None


class EmbeddingsRequest(msgspec.Struct):
    input: str | list[str | int | list[int]]
    model: str | None = None
    dimensions: int | None = None
    encoding_format: str = "float"


class Embedding(msgspec.Struct):
    index: int
    embedding: list[float] | str
    object: str = "embedding"


class Embeddings(msgspec.Struct, kw_only=True):
    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Embedding]
    usage: PoolingUsage


class Document(msgspec.Struct):
    text: str


class RerankRequest(msgspec.Struct):
    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: int = 0


class Ranked(msgspec.Struct):
    index: int
    document: Document
    relevance_score: float


class Ranking(msgspec.Struct):
    id: str
    model: str
    usage: PoolingUsage
    results: list[Ranked]


class ScoreRequest(msgspec.Struct):
    text_1: str | list[str]
    text_2: str | list[str]
    model: str | None = None


class Score(msgspec.Struct):
    index: int
    score: float
    object: str = "score"


class Scores(msgspec.Struct, kw_only=True):
    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Score]
    usage: PoolingUsage


class PoolingAnswer(Answer):
    """What `build` makes of the usage, once the engine has computed the prompts."""

    def __init__(self, generation: Generation, build: Callable[[PoolingUsage], msgspec.Struct]) -> None:
        super().__init__(generation)
        self._build = build

    def whole(self, collected: list[Collected]) -> bytes:
        tokens = self.generation.prompt_tokens
        return msgspec.json.encode(self._build(PoolingUsage(tokens, tokens)))


def embeddings(replica: Replica, body: bytes, headers: Mapping[str, str]) -> PoolingAnswer:
    """Raises RequestError."""
    request = parse(body, EmbeddingsRequest)
    replica.identity.check_model(request.model)
    dimensions = DIMENSIONS if request.dimensions is None else request.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise BadRequestError(f"dimensions must be between 1 and {MAX_DIMENSIONS}, got {dimensions}.", "dimensions")
    if request.encoding_format not in ("float", "base64"):
        raise BadRequestError(f"Unknown encoding_format: {request.encoding_format}", "encoding_format")
    prompts = _inputs(replica, request.input)

    def build(usage: PoolingUsage) -> Embeddings:
        vectors = [vector(prompt, dimensions) for prompt in prompts]
        data = [Embedding(i, _packed(v) if request.encoding_format == "base64" else v) for i, v in enumerate(vectors)]
        return Embeddings(id=new_id("embd-"), created=_now_s(), model=replica.identity.model, data=data, usage=usage)

    return PoolingAnswer(_prefill(replica, prompts), build)


def rerank(replica: Replica, body: bytes, headers: Mapping[str, str]) -> PoolingAnswer:
    """Raises RequestError."""
    request = parse(body, RerankRequest)
    replica.identity.check_model(request.model)
    documents = [Document(d) if isinstance(d, str) else d for d in request.documents]
    pairs = [(request.query, document.text) for document in documents]
    prompts = _pair_prompts(replica, pairs)

    def build(usage: PoolingUsage) -> Ranking:
        scores = _similarities(replica, pairs)
        results = [Ranked(i, documents[i], score) for i, score in enumerate(scores)]
        results.sort(key=lambda r: -r.relevance_score)
        top = results[: request.top_n] if request.top_n > 0 else results
        return Ranking(new_id("rerank-"), replica.identity.model, usage, top)

    return PoolingAnswer(_prefill(replica, prompts), build)


def score(replica: Replica, body: bytes, headers: Mapping[str, str]) -> PoolingAnswer:
    """One text against each of the others, or as many against as many. Raises RequestError."""
    request = parse(body, ScoreRequest)
    replica.identity.check_model(request.model)
    ones = [request.text_1] if isinstance(request.text_1, str) else request.text_1
    others = [request.text_2] if isinstance(request.text_2, str) else request.text_2
    if len(ones) == 1:
        ones = ones * len(others)
    if len(ones) != len(others):
        raise BadRequestError("Input lengths must be either 1:1, 1:N or N:N")
    pairs = list(zip(ones, others, strict=True))
    prompts = _pair_prompts(replica, pairs)

    def build(usage: PoolingUsage) -> Scores:
        data = [Score(i, value) for i, value in enumerate(_similarities(replica, pairs))]
        return Scores(id=new_id("score-"), created=_now_s(), model=replica.identity.model, data=data, usage=usage)

    return PoolingAnswer(_prefill(replica, prompts), build)


def _inputs(replica: Replica, given: str | list[str | int | list[int]]) -> list[TokenIds]:
    if isinstance(given, str):
        return [replica.tokenizer.encode(given, add_special_tokens=True)]
    numbers = [item for item in given if isinstance(item, int)]
    if numbers:
        if len(numbers) != len(given):
            raise BadRequestError("input must be texts or token ids, not both", "input")
        return [replica.prompt_ids(numbers)]
    prompts = []
    for item in given:
        if isinstance(item, str):
            prompts.append(replica.tokenizer.encode(item, add_special_tokens=True))
        elif isinstance(item, list):
            prompts.append(replica.prompt_ids(item))
    return _counted(prompts)


def _pair_prompts(replica: Replica, pairs: list[tuple[str, str]]) -> list[TokenIds]:
    texts = (f"{query}\n{document}" for query, document in pairs)
    return _counted([replica.tokenizer.encode(text, add_special_tokens=True) for text in texts])


def _counted(prompts: list[TokenIds]) -> list[TokenIds]:
    if not 1 <= len(prompts) <= MAX_INPUTS:
        raise BadRequestError(f"the number of inputs must be between 1 and {MAX_INPUTS}, got {len(prompts)}")
    return prompts


def _similarities(replica: Replica, pairs: list[tuple[str, str]]) -> list[float]:
    def of(text: str) -> list[float]:
        return vector(replica.tokenizer.encode(text))

    return [similarity(of(query), of(document)) for query, document in pairs]


def _prefill(replica: Replica, prompts: list[TokenIds]) -> Generation:
    """vLLM's default pooling reads no prefix cache; the one token that the engine makes is not shown."""
    return replica.generation(Sampling(max_tokens=1), prompts, reads_cache=False)


def _packed(values: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def _now_s() -> int:
    return int(time.time())
