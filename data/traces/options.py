"""How a trace is to be read: one checked set of options for all formats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from data.errors import SettingError

TimeUnit = Literal["s", "ms", "us", "ns"]
ZeroOutput = Literal["reject", "one"]

PER_SECOND: dict[TimeUnit, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Ticks of each unit in one second."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What the readers of all formats obey.

    Attributes:
        time_unit: Unit of numeric time stamps; ``None`` = the format's own or inferred, and reported.
        block_tokens: Tokens of one prefix block; ``None`` = the format's own or inferred, and reported.
        batch_rows: Rows of one batch, at most.
        max_rows: Rows of the file to read, good or bad; ``None`` = all.
        rebase: Arrivals start at 0 rather than at the first stamp; ``None`` = they do, but TokenFleet's own format
            is given out as it stands.
        spread_ticks: Where stamps are quantised, draw each arrival inside its tick (uniform, in file order).
        tick_s: Length of a tick in seconds; ``None`` = found from the stamps.
        seed: Seed of every draw that reading needs (ticks, session starts, generated requests).
        zero_output: A row without output tokens is rejected as failed, or kept with one output token.
        drop_equal_rows: Drop rows that are equal in every field although the format has no request id (they are
            only counted otherwise). Rows that repeat a request id are dropped in either case.
        reorder_rows: Rows held back to sort late rows in; a row later than that is rejected.
        closed_loop: Turns of a session start at their parent's end plus think time; ``None`` = the format's habit.
        assumed_tpot_s: Service time per output token with which a think time is derived from stamps where the
            format records neither think nor service time.
        output_budget_tokens: Budget (``max_tokens``) of a request whose trace tells none. It is doubled until it
            holds the output, so that it does not give the output length away.
        chain_block_ids: Block ids name block contents and are chained into prefix ids; ``False`` = they are prefix
            ids already; ``None`` = the format's habit, checked on the first rows.
        session_rate_per_s: Starts of sessions per second where the format records no absolute start.
        rate_scale: Factor on the demand of formats that hold rates instead of requests.
        lengths: File of length distributions that belongs to such rates.
    """

    time_unit: TimeUnit | None = None
    block_tokens: int | None = None
    batch_rows: int = 8192
    max_rows: int | None = None
    rebase: bool | None = None
    spread_ticks: bool = True
    tick_s: float | None = None
    seed: int = 0
    zero_output: ZeroOutput = "reject"
    drop_equal_rows: bool = False
    reorder_rows: int = 1024
    closed_loop: bool | None = None
    assumed_tpot_s: float = 0.02
    output_budget_tokens: int = 4096
    chain_block_ids: bool | None = None
    session_rate_per_s: float = 0.1
    rate_scale: float = 1.0
    lengths: Path | None = None

    def __post_init__(self) -> None:
        if self.time_unit is not None:
            _one_of("time_unit", self.time_unit, get_args(TimeUnit))
        _one_of("zero_output", self.zero_output, get_args(ZeroOutput))
        _within("batch_rows", self.batch_rows, 1, 1_000_000)
        _within("seed", self.seed, 0, 2**63 - 1)
        _within("reorder_rows", self.reorder_rows, 0, 1_000_000)
        _within("output_budget_tokens", self.output_budget_tokens, 1, 10_000_000)
        _within("assumed_tpot_s", self.assumed_tpot_s, 0, 10)
        _within("session_rate_per_s", self.session_rate_per_s, 1e-6, 1e6)
        _within("rate_scale", self.rate_scale, 1e-9, 1e6)
        if self.block_tokens is not None:
            _within("block_tokens", self.block_tokens, 1, 1_000_000)
        if self.max_rows is not None:
            _within("max_rows", self.max_rows, 1, 2**62)
        if self.tick_s is not None:
            _within("tick_s", self.tick_s, 1e-9, 86_400)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError("unknown choice", field=name, value=value, expected=" or ".join(allowed))


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SettingError("out of range", field=name, value=value, expected=f"{low} to {high}")
