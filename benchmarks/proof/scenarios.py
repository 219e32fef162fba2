"""What is compared on what: a scenario for each fleet and trace, and the traffic that everything is tuned on.

Reported traces are public ones; tuning uses synthetic traffic alone, so nothing is tuned on what is reported.
A public trace names neither tenants nor classes. A class is given by the length of the prompt; on ``four-sites``
the requests are those of one model, ``assistant@v1``, shared out among the tenants that may use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slomax_scenario import folder
from data.errors import SettingError
from data.fleet.reference import REFERENCE_FLEETS, reference_fleet
from data.synth.profiles import PROFILES
from data.traces.length_classes import LengthClasses
from data.traces.transform import Assignment
from planner.demo.workload import demo_trace
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.sim.settings import SimSettings
from planner.trace_source import FileTrace, Shaped, SynthTrace

FLEETS = REFERENCE_FLEETS
SIX_TENANTS = "six-tenants"
"""The demo's synthetic traffic over all models; on ``four-sites`` only."""
CLASSES = LengthClasses(("interactive", "long_context"), (8000,))
SAMPLE = 0.9
"""Share of the sessions that each seed draws, so that seeds differ in who comes."""
MODEL = "assistant@v1"
TENANTS = {"bank": 3.0, "clinic": 1.0, "shop": 3.0, "games": 2.0, "campus": 1.0}
CONTEXT_TOKENS = 131_072
"""Of the models that serve; agentic sessions end where they outgrow it."""
AGENTIC_S = 1200.0
"""Sessions begin and go on for this long: the longest ones would go on for a day, alone at the end."""
ORIGINS = {"A": 0.6, "B": 0.4}
TRAINING_S = 400.0
TRAINING_RATE_PER_S = 3.0
TRAINING_MIX = {"conversation": 0.5, "chat": 0.2, "code": 0.2, "document": 0.1}


@dataclass(frozen=True, slots=True)
class PublicTrace:
    """Where a trace stands below the folder of public traces, its format, and how its runs differ."""

    path: str
    format: str
    settings: SimSettings = field(default_factory=SimSettings)


TRACES: Mapping[str, PublicTrace] = {
    "conversation": PublicTrace("mooncake/conversation_trace.jsonl", "mooncake"),
    "synthetic": PublicTrace("mooncake/synthetic_trace.first613s.jsonl", "mooncake"),
    "azure-code": PublicTrace("azure-llm-2023/AzureLLMInferenceTrace_code.csv", "azure"),
    "azure-conv": PublicTrace("azure-llm-2023/AzureLLMInferenceTrace_conv.csv", "azure"),
    "agentic": PublicTrace("agentic-coding/sessions.jsonl.gz", "agentic", SimSettings(time_limit_s=AGENTIC_S)),
}


def trace_names(fleet: str) -> tuple[str, ...]:
    """Traces reported on a fleet."""
    return (*TRACES, SIX_TENANTS) if fleet == "four-sites" else tuple(TRACES)


def reported(fleet: str, trace: str) -> Scenario:
    """The scenario of one fleet and trace, at the trace's own speed.

    Raises:
        SettingError: No such trace on this fleet, or the public traces are not on this machine.
    """
    if trace == SIX_TENANTS and fleet == "four-sites":
        settings = SimSettings(time_limit_s=TRAINING_S)
        return Scenario(reference_fleet(fleet), Shaped(demo_trace(36.0, TRAINING_S)), settings)
    if trace not in TRACES:
        expected = "one of " + ", ".join(trace_names(fleet))
        raise SettingError("no such trace", field="trace", value=trace, expected=expected)
    source = TRACES[trace]
    path = traces_folder() / source.path
    names = four_sites_names() if fleet == "four-sites" else (Assignment("model", {MODEL: 1.0}),)
    shaped = Shaped(
        FileTrace(str(path), source.format),
        names=names,
        classes=CLASSES,
        sample=SAMPLE,
        context_tokens=CONTEXT_TOKENS,
    )
    return Scenario(reference_fleet(fleet), shaped, source.settings)


def training(fleet: str) -> Scenario:
    """Synthetic traffic of four kinds: what all arms are tuned on."""
    built = reference_fleet(fleet)
    if fleet == "four-sites":
        return Scenario(built, Shaped(demo_trace(24.0, TRAINING_S)), SimSettings(time_limit_s=TRAINING_S))
    streams = tuple(
        stream
        for name, share in TRAINING_MIX.items()
        for stream in fleet_streams(built, PROFILES[name], TRAINING_RATE_PER_S * share)
    )
    source = SynthTrace(streams, TRAINING_S, "synthetic " + ", ".join(TRAINING_MIX))
    return Scenario(built, Shaped(source, classes=CLASSES))


def traces_folder() -> Path:
    """The folder of public traces; ``SettingError`` if there is none."""
    found = folder()
    if found is None:
        raise SettingError(
            "the public traces are not on this machine", field="TOKENFLEET_SHARED_DATA", expected="their folder"
        )
    return found


def four_sites_names() -> tuple[Assignment, ...]:
    """Names for requests of a trace that has none."""
    return (
        Assignment("tenant", TENANTS),
        Assignment("model", {MODEL: 1.0}),
        Assignment("origin", ORIGINS),
    )
