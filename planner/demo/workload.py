"""What the demo's six tenants send to the ``four-sites`` fleet: three classes, two origins, a hot spell at B."""

from __future__ import annotations

from dataclasses import replace

from data.synth.arrivals import HotSpell
from data.synth.assign import Assignment
from data.synth.mix import Stream
from data.synth.profile import TraceProfile
from data.synth.profiles import PROFILES
from planner.trace_source import SynthTrace

HOT_SPELL = HotSpell(origin="B", since_s=200.0, until_s=300.0, factor=2.5)
"""For a while sessions start at site B this many times as often."""

ANALYST_PROMPT_TOKENS = 28_000
"""The analyst model takes 32,768 tokens; its users cut their documents so that there is room for the answer."""

INTERACTIVE_PROMPT_TOKENS = 16_000
"""Prompts beyond this cannot have their first token within a second: such talks belong to another class."""


def demo_trace(rate_per_s: float, duration_s: float) -> SynthTrace:
    """The demo's requests: all tenants together send ``rate_per_s`` requests/s on average.

    The draws come from the seed of each run, so a run with another seed has other requests from the same law.
    """
    long_talks, chat, code = PROFILES["conversation"], PROFILES["chat"], PROFILES["code"]
    document, batch = PROFILES["document"], PROFILES["batch"]
    conversation = cut(long_talks, INTERACTIVE_PROMPT_TOKENS)
    short_documents = cut(document, ANALYST_PROMPT_TOKENS)
    parts = (
        # share of all requests, profile, tenant, class, model
        (0.16, conversation, "bank", "interactive", "assistant@v1"),
        (0.03, short_documents, "bank", "long_context", "analyst@v1"),
        (0.07, chat, "clinic", "interactive", "assistant@v1"),
        (0.01, short_documents, "clinic", "long_context", "analyst@v1"),
        (0.14, conversation, "shop", "interactive", "assistant@v2"),
        (0.06, cut(document, 100_000), "shop", "long_context", "assistant@v1"),
        (0.20, chat, "games", "interactive", "assistant@v1"),
        (0.20, code, "studio", "interactive", "coder@v1"),
        (0.05, long_talks, "studio", "long_context", "coder@v1"),
        (0.08, cut(batch, 100_000), "campus", "batch", "assistant@v1"),
    )
    streams = tuple(
        Stream(profile, rate_per_s * share, origins(tenant, workload_class, model))
        for share, profile, tenant, workload_class, model in parts
    )
    return SynthTrace(streams, duration_s, f"six tenants of four-sites, {rate_per_s:g} requests/s")


def origins(tenant: str, workload_class: str, model: str) -> Assignment:
    """Labels of one stream: part of it enters at A, part arises at B, where the hot spell is."""
    return Assignment(
        model=model,
        tenant=tenant,
        workload_class=workload_class,
        origins=(("A", 0.6), ("B", 0.4)),
        hot_spells=(HOT_SPELL,),
    )


def cut(profile: TraceProfile, max_input_tokens: int) -> TraceProfile:
    """The same profile for a model with a shorter context: no prompt is longer than ``max_input_tokens``."""
    kinds = tuple(
        replace(kind, max_input_tokens=min(kind.max_input_tokens, max_input_tokens)) for kind in profile.kinds
    )
    return replace(profile, kinds=kinds)
