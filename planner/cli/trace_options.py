"""Options of the trace commands that say how a trace is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from data.traces.options import TimeUnit, TraceOptions, ZeroOutput
from data.traces.registry import FORMATS, TraceReader, open_trace

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_DEFAULTS = TraceOptions()

_OPTIONS = (
    click.argument("input_path", metavar="INPUT", type=click.Path(path_type=Path)),
    click.option(
        "--from", "format_name", type=click.Choice(sorted(FORMATS)), help="Format of INPUT [by content]."
    ),
    click.option("--time-unit", type=click.Choice(get_args(TimeUnit)), help="Unit of numeric stamps [inferred]."),
    click.option("--block-tokens", type=int, help="Tokens of one prefix block [the format's own, or inferred]."),
    click.option(
        "--spread-ticks/--no-spread-ticks",
        default=_DEFAULTS.spread_ticks,
        show_default=True,
        help="Draw arrivals inside their tick where stamps are quantised.",
    ),
    click.option("--tick-s", type=float, help="Length of such a tick in seconds [found from the stamps]."),
    click.option("--seed", type=int, default=_DEFAULTS.seed, show_default=True, help="Seed of all draws."),
    click.option(
        "--zero-output",
        type=click.Choice(get_args(ZeroOutput)),
        default=_DEFAULTS.zero_output,
        show_default=True,
        help="Refuse rows without output tokens, or keep them with one.",
    ),
    click.option("--drop-equal-rows", is_flag=True, help="Drop rows that repeat another in every field."),
    click.option("--max-rows", type=int, help="Read at most so many rows."),
    click.option(
        "--rebase/--no-rebase", default=None, help="Let arrivals start at 0 [yes, but for our own format]."
    ),
    click.option(
        "--reorder-rows",
        type=int,
        default=_DEFAULTS.reorder_rows,
        show_default=True,
        help="Rows held back to sort late ones in.",
    ),
    click.option(
        "--closed-loop/--open-loop",
        default=None,
        help="Start a session's turns at the end of the one before, or as recorded [the format's habit].",
    ),
    click.option(
        "--chain-block-ids/--keep-block-ids",
        default=None,
        help="Block ids name contents and are chained, or are prefix ids [the format's habit, checked].",
    ),
    click.option(
        "--output-budget",
        "output_budget_tokens",
        type=int,
        default=_DEFAULTS.output_budget_tokens,
        show_default=True,
        help="Output budget of requests that tell none; doubled until it holds the output.",
    ),
    click.option(
        "--session-rate",
        "session_rate_per_s",
        type=float,
        default=_DEFAULTS.session_rate_per_s,
        show_default=True,
        help="Session starts per second where the format has no absolute times.",
    ),
    click.option(
        "--rate-scale",
        type=float,
        default=_DEFAULTS.rate_scale,
        show_default=True,
        help="Factor on the demand of formats that hold rates.",
    ),
    click.option("--lengths", type=click.Path(path_type=Path), help="Length distributions for such rates."),
    click.option("--json", "as_json", is_flag=True, help="Machine output on stdout."),
)


def reading_options(command: CommandT) -> CommandT:
    """Adds INPUT, all reading options and ``--json`` to a command; they arrive as ``**reading``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Reading:
    """The reader that the options ask for, and whether the answer is JSON."""

    reader: TraceReader
    options: TraceOptions
    as_json: bool


def open_reading(reading: dict[str, Any]) -> Reading:
    """Open INPUT as the options say.

    Raises:
        TraceError: The file cannot be opened or its format is not clear.
        SettingError: An option is out of range.
    """
    left = dict(reading)
    path, name, as_json = left.pop("input_path"), left.pop("format_name"), left.pop("as_json")
    options = TraceOptions(**left)
    return Reading(open_trace(path, name, options), options, as_json)
