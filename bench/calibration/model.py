"""A tiny model that both sides can serve: a random Llama, a real byte-level BPE tokenizer, a chat template.

Nothing is downloaded. The weights are vLLM's own random ones (`--load-format dummy`), so the folder holds no tensors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.calibration.prose import Prose

SPECIALS = ("<|begin_of_text|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 2048

# ChatML, with a rule of its own, so that there is a template error to compare.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
{{- raise_exception('Unknown role: ' + message.role) }}
{%- endif %}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('The system message must come first.') }}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """`path` is what vLLM loads; the sim takes the two files."""

    path: Path

    @property
    def tokenizer(self) -> Path:
        return self.path / "tokenizer.json"

    @property
    def chat_template(self) -> Path:
        return self.path / "chat_template.jinja"


def make_model(path: Path, max_model_len: int) -> ModelFolder:
    """Writes the folder. The same every time."""
    folder = ModelFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    train_tokenizer(Prose(seed=1).lines(4000)).save(str(folder.tokenizer))
    folder.chat_template.write_text(CHAT_TEMPLATE)
    _write(path / "config.json", _config(max_model_len))
    _write(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[0],
            "eos_token": SPECIALS[2],
            "model_max_length": max_model_len,
            "clean_up_tokenization_spaces": False,
        },
    )
    return folder


def train_tokenizer(lines: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _config(max_model_len: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": max_model_len,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1))
