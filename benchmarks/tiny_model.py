"""A very small language model for real engines: two layers, a vocabulary of numbered words, no weights on disk.

Engines that are told to make up their weights (vLLM: ``--load-format dummy``) serve it from this folder alone. KV
memory is 512 bytes a token, so a few megabytes hold many prompts and evictions come within seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = 256
"""Words that prompts are made of, token ids 0 to 255; the markers come behind them."""
MARKERS = ("<s>", "</s>", "<pad>")
LAYERS, HEADS, KV_HEADS, HEAD_WIDTH = 2, 2, 1, 64


def write_tiny_model(folder: Path, context_tokens: int = 8192) -> Path:
    """Configuration and tokenizer of the model, in ``folder`` (made if it is not there); gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": _architecture(context_tokens),
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context_tokens,
            **_named_markers(),
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def _architecture(context_tokens: int) -> dict[str, Any]:
    first, last, pad = range(WORDS, WORDS + len(MARKERS))
    width = HEADS * HEAD_WIDTH
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        # As many as the tokenizer knows: an engine may draw any of them.
        "vocab_size": WORDS + len(MARKERS),
        "max_position_embeddings": context_tokens,
        "torch_dtype": "bfloat16",
        "bos_token_id": first,
        "eos_token_id": last,
        "pad_token_id": pad,
    }


def _tokenizer() -> dict[str, Any]:
    """One token a word, ``t0`` to ``t255``, parted by spaces."""
    vocabulary = {f"t{number}": number for number in range(WORDS)}
    vocabulary |= {marker: WORDS + number for number, marker in enumerate(MARKERS)}
    kept = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary[marker], "content": marker, "special": True, **kept} for marker in MARKERS
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": MARKERS[2]},
    }


def _named_markers() -> dict[str, str]:
    return dict(zip(("bos_token", "eos_token", "pad_token"), MARKERS, strict=True))
