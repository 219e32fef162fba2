"""Conversations that grow turn by turn, after the Mooncake conversation trace.

Fitted: input and output quantiles, share of rows that go on from an earlier one and how much of it they keep
(85 % append, the others branch early in a long prompt), tokens added, time from turn to turn, the one shared
block that every row starts with. The share of branching turns was then set so that the ideal hit agrees.
"""

from __future__ import annotations

from data.synth.profile import Edits, SessionKind, SharedPrefix, TraceProfile
from data.synth.quantiles import Quantiles

CONVERSATION = TraceProfile(
    name="conversation",
    source="Mooncake conversation trace (FAST 2025): 12,031 requests in 3,540 s",
    kinds=(
        SessionKind(
            weight=1.0,
            max_input_tokens=126_195,
            first_input_tokens=Quantiles.of(
                (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1),
                (891, 903, 1175, 4700, 11441, 23300, 36000, 90000, 125000),
            ),
            output_tokens=Quantiles.of(
                (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1),
                (1, 3, 10, 24, 156, 350, 472, 597, 698, 1118, 2000, 2000),
            ),
            turns=Quantiles.of(
                (0, 0.65, 0.83, 0.905, 0.94, 0.96, 0.973, 0.985, 0.992, 0.998, 1),
                (1, 2, 3, 4, 5, 6, 7, 9, 11, 16, 44),
            ),
            gap_s=Quantiles.of(
                (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1),
                (3, 12, 30, 42, 67, 130, 290, 560, 800, 2000, 4000),
            ),
            added_tokens=Quantiles.of(
                (0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
                (1, 7, 11, 16, 26, 52, 172, 694, 4194, 6921, 16705, 60000),
            ),
            edits=Edits(
                share=0.28,
                keep=Quantiles.of(
                    (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
                    (0.015, 0.053, 0.07, 0.1, 0.13, 0.174, 0.218, 0.29, 0.4, 0.54, 0.89, 0.99),
                ),
                added_tokens=Quantiles.of(
                    (0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1),
                    (10, 900, 1770, 4985, 8542, 10940, 19890, 39350, 60000),
                ),
            ),
        ),
    ),
    prefixes=(SharedPrefix(890),),
    warm_up_s=7200.0,
)
