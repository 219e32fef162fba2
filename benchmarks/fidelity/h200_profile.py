"""A profile of an engine on one H200 that no constant of the catalog was fitted on, beside the catalog's steps.

The profile (Dynamo's planner ships it) gives decode times over context length and KV in use, and first-token times
over prompt length. It does not name its model: memory (945,029 KV tokens) and times are those of an 8B model at
16 bit. Sequences of a decode point are output rate times step time, which is less than asked for where the engine
admits no more. The catalog's decode steps are fitted up to 256 sequences; points beyond are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fidelity.rows import Row, error_row
from data.catalog.load import load_catalog

CATALOG = ("llama-3.1-8b", "H200", 1)
MOST_SEQUENCES = 256
SHORT_PROMPT = 3000
"""Below it the front end's own time is a large part of the profile's first token."""


def profile_rows(folder: Path) -> Iterator[Row]:
    """Errors of the catalog's decode and prefill steps; none without the profile."""
    if not folder.is_dir():
        return
    times = load_catalog().facts(*CATALOG).times
    decode = np.load(folder / "h200_decode_raw_data.npz", allow_pickle=False)
    step_s = decode["z_itl"] / 1e3
    sequences = np.maximum(decode["z_thpt_per_gpu"] * step_s, 1.0)
    kv_tokens = sequences * decode["y_context_length"]
    ratio = np.array(
        [
            times.decode_s(float(batch), float(kv)) / took - 1.0
            for batch, kv, took in zip(sequences, kv_tokens, step_s, strict=True)
        ]
    )
    many = sequences > MOST_SEQUENCES
    yield error_row("profile/h200/decode", ratio[~many])
    yield error_row("profile/h200/decode_one_sequence", ratio[sequences < 2])
    yield error_row("profile/h200/decode_many_sequences", ratio[many])
    prefill = np.load(folder / "h200_prefill_raw_data.npz", allow_pickle=False)
    prompts = prefill["prefill_isl"].astype(np.float64)
    ratio = np.array([times.prefill_s(float(n)) for n in prompts]) / (prefill["prefill_ttft"] / 1e3) - 1.0
    yield error_row("profile/h200/prefill", ratio)
    yield error_row("profile/h200/prefill_long", ratio[prompts >= SHORT_PROMPT])
    yield error_row("profile/h200/prefill_short", ratio[prompts < SHORT_PROMPT])
