"""The reference overload: interactive, long-context and batch traffic on one pool, from public traces.

Interactive and long-context requests are those of the Mooncake conversation trace below and above 8,000 prompt
tokens, more long context comes from the Mooncake synthetic trace (its long prompts), and batch is the Azure code
trace of 2023. Where the traces are not on the machine, the synthetic profiles fitted to them stand in.

A second mix is made of other traces: the Azure conversation trace, agentic coding sessions (calls at their
recorded times, contexts up to 120,000 tokens) and, as batch, requests drawn from the ServeGen rates of a mid-size
model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet
from data.synth.profiles import PROFILES
from data.traces.batches import take
from data.traces.length_classes import LengthClasses
from data.traces.options import TraceOptions
from data.traces.transform import Assignment, merge, window
from data.types import TraceBatch
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.trace_source import FileTrace, Shaped, SynthTrace, TraceSource

WINDOW_S = 600.0
CLASSES = LengthClasses(("interactive", "long_context"), (8000,))
SPEEDS = {"conversation": 4.0, "long": 0.8, "batch": 5.0}
"""Factors on the traces' own rates at speed 1 of the mix."""
BATCH = (Assignment("workload_class", {"batch": 1.0}),)


@dataclass(frozen=True, slots=True)
class Mix:
    """Several sources merged, cut to a window of their own clock.

    Attributes:
        parts: What is merged.
        duration_s: Length of the window.
        label: What it is, for people.
    """

    parts: tuple[Shaped, ...]
    duration_s: float
    label: str

    @property
    def varies(self) -> str:
        """A tenth of the sessions."""
        return "which nine tenths of the sessions take part, and engine noise"

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """The merged requests, in order of arrival."""
        return window(merge([part.batches(seed, skipped) for part in self.parts]), 0.0, self.duration_s)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Another source, for the one model of the fleet, without prompts that none of its engines could take.

    Attributes:
        block_tokens: Block size that requests without prefix blocks are given, to be merged with those that have.
    """

    source: TraceSource
    most_tokens: int
    block_tokens: int

    @property
    def label(self) -> str:
        """The label of what is cut."""
        return self.source.label

    @property
    def varies(self) -> str:
        """What varies in what is cut."""
        return self.source.varies

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """The requests whose prompts have at most ``most_tokens``."""
        for batch in self.source.batches(seed, skipped):
            size = batch.block_tokens if len(batch.hashes) else self.block_tokens
            kept = take(batch, np.flatnonzero(batch.input_tokens <= self.most_tokens))
            yield replace(kept, block_tokens=size, model=(), tenant=())


def folder() -> Path | None:
    """Where the public traces are, if they are on this machine."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside))
    return path if (path / "mooncake" / "conversation_trace.jsonl").is_file() else None


def sources(fleet: Fleet) -> dict[str, TraceSource]:
    """The three sources, from files where they are."""
    base = folder()
    options = TraceOptions(block_tokens=512)
    if base is not None:
        azure = base / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv"
        return {
            "conversation": FileTrace(str(base / "mooncake" / "conversation_trace.jsonl"), "mooncake"),
            "long": FileTrace(str(base / "mooncake" / "synthetic_trace.first613s.jsonl"), "mooncake"),
            "batch": FileTrace(str(azure), "azure", options),
        }
    profiles = {"conversation": ("conversation", 3.4), "long": ("document", 3.8), "batch": ("batch", 2.6)}
    return {
        name: SynthTrace(fleet_streams(fleet, PROFILES[profile], rate), 3600.0, f"synthetic {profile}")
        for name, (profile, rate) in profiles.items()
    }


def scenario(batch_factor: float = 1.0, fleet: Fleet | None = None) -> Scenario:
    """The mix on eight equal replicas; ``batch_factor`` scales the batch load (0 = none)."""
    fleet = fleet or reference_fleet("one-pool")
    found = sources(fleet)
    parts = [
        Shaped(found["conversation"], SPEEDS["conversation"], classes=CLASSES, sample=0.9),
        Shaped(found["long"], SPEEDS["long"], classes=CLASSES, sample=0.9),
    ]
    if batch_factor > 0:
        parts.append(Shaped(found["batch"], SPEEDS["batch"] * batch_factor, BATCH, sample=0.9))
    label = "conversation, long context and batch" if batch_factor > 0 else "conversation and long context"
    return Scenario(fleet, Shaped(Mix(tuple(parts), WINDOW_S, label)))


SECOND_SPEEDS = {"conversation": 4.0, "long": 4.0, "batch": 1.0}
LONGEST_CONTEXT = 120_000
SECOND_BLOCK = 64
"""Tokens of a block of the agentic sessions."""


def second_sources(fleet: Fleet) -> dict[str, TraceSource]:
    """The three sources of the second mix, from files where they are."""
    base = folder()
    if base is None:
        profiles = {"conversation": ("conversation", 5.5), "long": ("agentic", 1.0), "batch": ("batch", 15.0)}
        return {
            name: SynthTrace(fleet_streams(fleet, PROFILES[profile], rate), 3600.0, f"synthetic {profile}")
            for name, (profile, rate) in profiles.items()
        }
    calls = TraceOptions(block_tokens=SECOND_BLOCK, closed_loop=False, session_rate_per_s=0.1)
    rates = TraceOptions(rate_scale=0.015, lengths=base / "servegen" / "m-mid.length_quantiles.day0-10.csv.gz")
    files = {
        "conversation": FileTrace(str(base / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv"), "azure"),
        "long": FileTrace(str(base / "agentic-coding" / "sessions.jsonl.gz"), "agentic", calls),
        "batch": FileTrace(str(base / "servegen" / "m-mid.rates.day0-10.csv.gz"), "servegen", rates),
    }
    return {name: Fitting(source, LONGEST_CONTEXT, SECOND_BLOCK) for name, source in files.items()}


def second_scenario(fleet: Fleet | None = None) -> Scenario:
    """The second mix on eight equal replicas."""
    fleet = fleet or reference_fleet("one-pool")
    found = second_sources(fleet)
    parts = tuple(
        Shaped(found[name], speed, BATCH if name == "batch" else (), None if name == "batch" else CLASSES, 0.9)
        for name, speed in SECOND_SPEEDS.items()
    )
    return Scenario(fleet, Shaped(Mix(parts, WINDOW_S, "Azure conversation, agentic coding and ServeGen batch")))
