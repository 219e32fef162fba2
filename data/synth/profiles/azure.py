"""Chat and code completion, after the Azure LLM inference traces of 2023 (Patel et al., Splitwise, ISCA 2024).

Fitted: input and output quantiles, gap quantiles (code), and random levels of the rate so that gap CV and busiest
minute agree. The traces tell nothing of prefixes or sessions, so these profiles carry no block ids.
"""

from __future__ import annotations

from data.synth.arrivals import Gaps, Levels
from data.synth.profile import SessionKind, TraceProfile
from data.synth.quantiles import Quantiles

CHAT = TraceProfile(
    name="chat",
    source="Azure LLM inference trace 2023, conversation: 19,366 requests in 3,502 s",
    kinds=(
        SessionKind(
            weight=1.0,
            first_input_tokens=Quantiles.of(
                (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1),
                (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 4083, 4142, 6179, 14050),
            ),
            output_tokens=Quantiles.of(
                (0, 0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
                (7, 16, 41, 54, 85, 103, 129, 177, 384, 400, 424, 451, 601, 1000),
            ),
        ),
    ),
    levels=Levels((0.6, 0.9, 1.1, 1.55), dwell_s=250.0),
    prefix_ids=False,
    output_budget=1024,
)

CODE = TraceProfile(
    name="code",
    source="Azure LLM inference trace 2023, code: 8,819 requests in 3,436 s",
    kinds=(
        SessionKind(
            weight=1.0,
            first_input_tokens=Quantiles.of(
                (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
                (3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5188, 7303, 7436, 7437),
            ),
            output_tokens=Quantiles.of(
                (0, 0.05, 0.1, 0.25, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 0.999, 1),
                (6, 6, 7, 9, 13, 16, 24, 55, 90, 251, 825, 1899),
            ),
        ),
    ),
    gaps=Gaps(
        shape=Quantiles.of(
            (0, 0.3, 0.4, 0.5, 0.6, 0.75, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 1),
            (0, 0, 0.02, 0.06, 0.09, 0.1, 0.16, 0.27, 0.4, 2.21, 13, 84, 217),
        )
    ),
    levels=Levels((0.5, 1.5), dwell_s=60.0),
    prefix_ids=False,
    output_budget=2048,
)
