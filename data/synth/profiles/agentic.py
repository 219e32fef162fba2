"""Coding agents: long prompts that grow by tool results, after 270 public agentic coding sessions.

Fitted: calls of a session, output and think time quantiles, tokens added by a call, share of calls that compact
the context, tokens of tools and system prompt, server time against output length. Two fifths of the sessions
begin with a long context. Opening reads are folded into the first prompt of the others.
"""

from __future__ import annotations

from data.synth.profile import Edits, SessionKind, SharedPrefix, TraceProfile
from data.synth.quantiles import Quantiles

_CODING_OUTPUT = Quantiles.of(
    (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1),
    (1, 51, 90, 105, 138, 213, 414, 892, 1516, 3607, 13736),
)
_CODING_THINK_S = Quantiles.of(
    (0, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1), (0, 0, 3, 4, 5, 10, 39, 209, 605, 3160, 7200)
)
_CODING_ADDED = Quantiles.of(
    (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1), (1, 1, 35, 255, 966, 2400, 4000, 11000, 40000)
)
_COMPACTION = Edits(
    share=0.005,
    keep=Quantiles.of((0, 0.5, 1), (0.05, 0.15, 0.9)),
    added_tokens=Quantiles.of((0, 0.5, 1), (1000, 10000, 40000)),
)


def _coding(weight: float, first: Quantiles, turns: Quantiles, limit: int) -> SessionKind:
    return SessionKind(
        weight=weight,
        first_input_tokens=first,
        output_tokens=_CODING_OUTPUT,
        turns=turns,
        gap_s=_CODING_THINK_S,
        added_tokens=_CODING_ADDED,
        edits=_COMPACTION,
        max_input_tokens=limit,
    )


AGENTIC = TraceProfile(
    name="agentic",
    source="Public agentic coding sessions: 270 sessions, 13,550 calls",
    kinds=(
        _coding(
            0.6,
            Quantiles.of((0, 0.1, 0.5, 0.75, 1), (9925, 20000, 34000, 40000, 46000)),
            Quantiles.of((0, 0.1, 0.25, 0.5, 0.75, 0.9, 1), (4, 11, 32, 74, 124, 180, 248)),
            165_000,
        ),
        _coding(
            0.32,
            Quantiles.of((0, 0.1, 0.4, 0.6, 1), (46531, 61000, 85000, 112994, 160000)),
            Quantiles.of((0, 0.25, 0.5, 0.75, 0.9, 1), (4, 10, 26, 42, 62, 99)),
            172_000,
        ),
        _coding(
            0.07,
            Quantiles.of((0, 0.5, 1), (160000, 245000, 350000)),
            Quantiles.of((0, 0.25, 0.5, 0.75, 0.9, 1), (4, 10, 26, 42, 62, 99)),
            434_244,
        ),
    ),
    prefixes=tuple(
        SharedPrefix(tokens, 1 / k)
        for k, tokens in enumerate((15173, 14731, 15535, 16799, 15771, 13174, 12435, 17353), 1)
    ),
    closed_loop=True,
    service_s=(2.5, 0.015),
    output_budget=16_384,
    warm_up_s=43_200.0,
)
