"""An assignment in Dynamo's simulator: each endpoint's requests on one worker with that endpoint's step times."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.proof.referee.assignment import Assignment, Dispatch
from benchmarks.proof.referee.step_curves import same_work, write_profile
from data.errors import SettingError
from data.types import FloatArray

Form = Literal["cold_prompt", "same_work"]
"""What the replay is told of prefill. ``cold_prompt``: what a cold prompt of so many tokens takes alone, as the
profile of an engine would tell. ``same_work``: less the reading of the weights, and times one factor for each
worker, so that its prompts take as long as in ours, attention to earlier chunks and to cached tokens included.
"""
PYTHON = "TOKENFLEET_DYNAMO_PYTHON"
"""Names the interpreter that has ``ai-dynamo`` 1.6.1."""
PROGRAM = Path(__file__).parent / "dynamo_worker.py"
BLOCK_TOKENS = 64
"""Dynamo's default for a vLLM worker; ours count in blocks of 16. Prefixes come in larger blocks in both."""
APART_MS = 1e-3
"""Arrivals of one worker are at least so far apart: the replay tells its requests by their arrival."""
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Served:
    """What Dynamo's workers did.

    Attributes:
        times: Shape (dispatches, 2): TTFT and E2E from the arrival at the engine, seconds.
        hit_rate: Prompt tokens found in a cache over all prompt tokens.
    """

    times: FloatArray
    hit_rate: float


@dataclass(slots=True)
class BlockNumbers:
    """Small numbers for block ids; a prompt without ids gets numbers that nobody else has."""

    known: dict[int, int] = field(default_factory=dict)
    used: int = 0

    def of(self, one: Dispatch) -> list[int]:
        """One number for each block of the prompt, the last, incomplete one included."""
        request = one.request
        hashes = request.block_hashes
        blocks = -(-request.input_tokens // request.block_tokens)
        numbers = [self.known.get(block) or self._new(block) for block in hashes[:blocks]]
        return numbers + [self._new(None) for _ in range(blocks - len(numbers))]

    def _new(self, block: int | None) -> int:
        self.used += 1
        if block is not None:
            self.known[block] = self.used
        return self.used


def dynamo_python() -> str | None:
    """The interpreter, if one is named."""
    return os.environ.get(PYTHON) or None


def replayed(python: str, assignment: Assignment, form: Form) -> Served:
    """Serve an assignment with Dynamo's workers.

    Raises:
        subprocess.CalledProcessError: The replay failed.
        SettingError: It served other requests than it was given.
    """
    endpoints = [row for row in range(len(assignment.specs)) if assignment.rows(row)]
    with tempfile.TemporaryDirectory() as folder:
        asked = [_worker(Path(folder), assignment, endpoint, form) for endpoint in endpoints]
        done = subprocess.run(
            [python, str(PROGRAM)],
            input=json.dumps({"workers": asked}),
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    return _gathered(assignment, endpoints, json.loads(done.stdout.splitlines()[-1])["workers"])


def trace_lines(dispatches: Sequence[Dispatch]) -> Iterator[dict[str, Any]]:
    """One endpoint's requests in Mooncake's form, arrivals counted from the first."""
    numbers, last_ms = BlockNumbers(), -math.inf
    for one in dispatches:
        last_ms = max((one.at_engine_s - dispatches[0].at_engine_s) * 1e3, last_ms + APART_MS)
        yield {
            "timestamp": last_ms,
            "input_length": one.request.input_tokens,
            "output_length": one.request.output_tokens,
            "hash_ids": numbers.of(one),
        }


def _worker(folder: Path, assignment: Assignment, endpoint: int, form: Form) -> dict[str, Any]:
    spec, name = assignment.specs[endpoint], str(endpoint)
    rows = assignment.rows(endpoint)
    dispatches = [assignment.dispatches[row] for row in rows]
    trace, profile = folder / f"{name}.jsonl", folder / f"{name}.npz"
    trace.write_text("".join(json.dumps(line) + "\n" for line in trace_lines(dispatches)))
    if form == "cold_prompt":
        write_profile(profile, spec)
    else:
        held = assignment.cached[rows].tolist()
        new = [(one.request.input_tokens - cached, cached) for one, cached in zip(dispatches, held, strict=True)]
        write_profile(profile, spec, same_work(spec, new), fixed=False)
    return {
        "trace": str(trace),
        "profile": str(profile),
        "trace_block_tokens": dispatches[0].request.block_tokens,
        "blocks": spec.kv_capacity_tokens // BLOCK_TOKENS,
        "block_tokens": BLOCK_TOKENS,
        "batch_tokens": spec.batch_token_budget,
        "sequences": spec.max_seqs,
    }


def _gathered(assignment: Assignment, endpoints: Sequence[int], answers: Sequence[list[list[float]]]) -> Served:
    times = np.full((len(assignment.dispatches), 2), math.nan)
    reused = prompts = 0.0
    for endpoint, answer in zip(endpoints, answers, strict=True):
        rows = assignment.rows(endpoint)
        requests = [assignment.dispatches[row].request for row in rows]
        if [(one.input_tokens, one.output_tokens) for one in requests] != [(row[0], row[1]) for row in answer]:
            raise SettingError(
                "the replay served other requests than it was given",
                value=len(answer),
                expected=f"the {len(rows)} of {assignment.specs[endpoint].endpoint_id}",
            )
        times[rows] = [row[3:5] for row in answer]
        reused += sum(row[2] for row in answer)
        prompts += sum(row[0] for row in answer)
    return Served(times, reused / prompts)
