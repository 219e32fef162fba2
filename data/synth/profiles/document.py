"""Long documents that are read again and again beside short questions, after the Mooncake synthetic trace.

Fitted: the two humps of the input lengths with the outputs of each, outputs of first and later readings, prompt
tokens not shared with the earlier reading, rows without reuse. Readings of a document and the time between them
are set so that the ideal hit of the first 613 s agrees.
"""

from __future__ import annotations

from data.synth.profile import Edits, SessionKind, TraceProfile
from data.synth.quantiles import Quantiles

DOCUMENT = TraceProfile(
    name="document",
    source="Mooncake synthetic trace (FAST 2025), its first 613 s: 2,318 requests",
    kinds=(
        SessionKind(
            weight=0.715,
            first_input_tokens=Quantiles.of(
                (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.97, 1), (13, 17, 29, 48, 118, 420, 900, 3500)
            ),
            output_tokens=Quantiles.of((0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), (2, 15, 145, 275, 370, 690, 840)),
        ),
        SessionKind(
            weight=0.285,
            max_input_tokens=200_000,
            first_input_tokens=Quantiles.of(
                (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.995, 1),
                (1000, 5000, 12500, 19000, 30000, 41500, 52000, 66000, 191000),
            ),
            output_tokens=Quantiles.of((0, 0.1, 0.25, 0.5, 0.75, 0.95, 1), (2, 20, 140, 235, 290, 460, 800)),
            later_output_tokens=Quantiles.of(
                (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1), (2, 2, 4, 12, 60, 150, 342, 512, 700)
            ),
            turns=Quantiles.of((0, 0.25, 0.48, 0.65, 0.78, 0.88, 0.95, 0.98, 1), (1, 2, 3, 4, 5, 6, 7, 9, 12)),
            gap_s=Quantiles.of(
                (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1), (0, 14, 30, 90, 210, 410, 680, 1200, 1800)
            ),
            edits=Edits(
                share=1.0,
                keep=Quantiles.of((0, 0.2, 0.5, 1), (0.93, 0.975, 0.99, 0.999)),
                added_tokens=Quantiles.of((0, 0.5, 0.9, 1), (10, 60, 400, 1500)),
                of_first=True,
            ),
        ),
    ),
    warm_up_s=7200.0,
)
