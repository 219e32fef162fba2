"""What a synthetic workload looks like: its sessions, their lengths and reuse, and how they arrive."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from data.synth.arrivals import POISSON, Gaps, Levels
from data.synth.quantiles import ALWAYS_0, ALWAYS_1, Quantiles


@dataclass(frozen=True, slots=True)
class Edits:
    """Turns that do not go on from the whole history: an edited message, another question on the same text.

    Attributes:
        share: Share of later turns that do so (0 to 1).
        keep: Share of the session's first prompt (``of_first``) or of the previous prompt that stays (0 to 1).
        added_tokens: Tokens that follow what is kept.
        of_first: Count ``keep`` from the first prompt: many questions on one document.
    """

    share: float
    keep: Quantiles
    added_tokens: Quantiles
    of_first: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SettingError("setting out of range", field="share", value=self.share, expected="0 to 1")
        if self.keep.points[-1][1] > 1:
            raise SettingError("setting out of range", field="keep", value=self.keep, expected="values 0 to 1")


@dataclass(frozen=True, slots=True)
class SessionKind:
    """Sessions of one shape.

    A later turn sends the previous prompt and answer plus ``added_tokens``, unless it is an edit.

    Attributes:
        weight: Share of sessions of this kind, relative to the other kinds (> 0).
        first_input_tokens: Prompt of the first turn, the shared prefix included.
        output_tokens: Output of every turn.
        turns: Requests of a session, rounded down (values >= 1).
        gap_s: Open loop: from a turn's arrival to the next one's. Closed loop: think time after completion.
        added_tokens: New tokens of a later turn.
        edits: Turns that branch off; ``None`` = every turn goes on.
        later_output_tokens: Output of the turns after the first; ``None`` = as the first.
        max_input_tokens: The session ends before a prompt would be longer (> 0).
    """

    weight: float
    first_input_tokens: Quantiles
    output_tokens: Quantiles
    turns: Quantiles = ALWAYS_1
    gap_s: Quantiles = ALWAYS_0
    added_tokens: Quantiles = ALWAYS_0
    edits: Edits | None = None
    later_output_tokens: Quantiles | None = None
    max_input_tokens: int = 131_072

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise SettingError("setting out of range", field="weight", value=self.weight, expected="above 0")
        if not self.max_input_tokens > 0:
            value = self.max_input_tokens
            raise SettingError("setting out of range", field="max_input_tokens", value=value, expected="above 0")
        if self.turns.points[0][1] < 1:
            raise SettingError("setting out of range", field="turns", value=self.turns, expected="values >= 1")


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A system prompt (with tools) that many sessions begin with. ``weight`` is relative to the other ones."""

    tokens: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.tokens < 0 or not self.weight > 0:
            raise SettingError("bad shared prefix", value=self, expected="tokens >= 0 and a weight above 0")


@dataclass(frozen=True, slots=True)
class TraceProfile:
    """A synthetic workload.

    Attributes:
        name: Name on the command line.
        source: The data whose statistics it is fitted to.
        kinds: Kinds of session, drawn by weight.
        gaps: Law of the gaps between session starts.
        levels: Random modulation of the rate of starts.
        prefixes: Shared prefixes; empty = none. A session's first prompt is longer than its prefix.
        prefix_ids: Whether requests carry block ids; ``False`` where the source tells nothing of prefixes.
        block_tokens: Tokens of one block (16 to 4,096).
        closed_loop: Later turns wait for their parent's completion, then think.
        service_s: Closed loop: fixed part and part for each output token of the completion time that the
            *recorded* arrivals assume, seconds.
        output_budget: Bound that callers give; a longer output raises its own (> 0).
        warm_up_s: Sessions start this long before the trace, so that it begins in mid-stream (>= 0). Their
            requests before 0 are not part of it.
    """

    name: str
    source: str
    kinds: tuple[SessionKind, ...]
    gaps: Gaps = POISSON
    levels: Levels | None = None
    prefixes: tuple[SharedPrefix, ...] = ()
    prefix_ids: bool = True
    block_tokens: int = 512
    closed_loop: bool = False
    service_s: tuple[float, float] = (0.0, 0.0)
    output_budget: int = 4096
    warm_up_s: float = 0.0

    def __post_init__(self) -> None:
        for name, ok, expected in (
            ("kinds", len(self.kinds) > 0, "at least one kind of session"),
            ("block_tokens", 16 <= self.block_tokens <= 4096, "16 to 4,096"),
            ("service_s", min(self.service_s) >= 0, "0 or more"),
            ("output_budget", self.output_budget > 0, "above 0"),
            ("warm_up_s", self.warm_up_s >= 0, "0 or more"),
        ):
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)
