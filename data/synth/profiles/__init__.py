"""The built-in profiles: parameters fitted to published statistics of real traces, never rows of them.

Each profile's ``source`` names what it is fitted to; ``docs/synthetic-traces.md`` shows real beside synthetic.
"""

from __future__ import annotations

from collections.abc import Mapping

from data.synth.profile import TraceProfile
from data.synth.profiles.agentic import AGENTIC
from data.synth.profiles.azure import CHAT, CODE
from data.synth.profiles.batch import BATCH
from data.synth.profiles.conversation import CONVERSATION
from data.synth.profiles.document import DOCUMENT

PROFILES: Mapping[str, TraceProfile] = {
    profile.name: profile for profile in (CONVERSATION, DOCUMENT, CHAT, CODE, AGENTIC, BATCH)
}
"""Profile by name."""
