"""Long documents worked off line: no reuse but the instruction, sent in bursts.

Lengths are those of the documents of the Mooncake synthetic trace; the gap CV of 6 is what the burstiest tenth of
the traffic of ServeGen's m-large tier exceeds. Deadlines belong to the workload class, not to the trace.
"""

from __future__ import annotations

from data.synth.arrivals import Gaps
from data.synth.profile import SessionKind, SharedPrefix, TraceProfile
from data.synth.profiles.document import DOCUMENT

BATCH = TraceProfile(
    name="batch",
    source="documents of the Mooncake synthetic trace, submitted with the gap CV of ServeGen's burstiest tenth",
    kinds=(
        SessionKind(
            weight=1.0,
            first_input_tokens=DOCUMENT.kinds[1].first_input_tokens,
            output_tokens=DOCUMENT.kinds[1].output_tokens,
            max_input_tokens=200_000,
        ),
    ),
    gaps=Gaps(cv=6.0),
    prefixes=(SharedPrefix(600),),
)
