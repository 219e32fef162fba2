"""The demand file: what is expected of each commodity, in YAML or JSON, read strictly.

::

    window_s: 180                # length of the window of counters
    spread: 0.25                 # standard deviation of log demand where only the middle is given
    demand:
      - {model: assistant@v1, workload_class: interactive, tenant: shop, origin: A, tokens_per_s: 900}
      - {model: assistant@v1, workload_class: batch, tenant: shop, origin: A, quantiles: [700, 900, 1100, 1300]}
      - {model: coder@v1, workload_class: batch, tenant: shop, origin: A, counter: [5120, 5120]}   # no traffic
      - {model: coder@v1, workload_class: interactive, tenant: shop, origin: A, missing: true}     # no data
      - {model: coder@v1, workload_class: batch, tenant: lab, origin: A, quantiles: [5, 7, 9, 12], missing: true}

The last one is a forecast made while no data comes in: its model may grow, not shrink.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data.errors import InputError
from data.fleet.types import Fleet
from data.strict.decode import Decoder
from data.strict.faults import Fault, one_of, to_errors
from data.strict.rules import NOT_NEGATIVE, Rule, RuleBook
from data.strict.yaml_tree import read_yaml
from planner.demand import (
    LEVELS,
    CounterKind,
    DemandRow,
    DemandTable,
    demand_table,
    read_counter,
    spread_quantiles,
)


@dataclass(frozen=True, slots=True)
class DemandEntry:
    """One line of the file: exactly one of ``tokens_per_s``, ``quantiles``, ``counter`` and ``missing``.

    Only ``quantiles`` and ``missing`` may stand together.
    """

    model: str
    workload_class: str
    tenant: str
    origin: str
    tokens_per_s: float | None = None
    """Median forecast of output tokens/s."""
    quantiles: tuple[float, ...] = ()
    """Forecast at 20, 50, 80 and 95 %."""
    counter: tuple[float | None, ...] = ()
    """Output-token counter at the start and end of the window; null = absent."""
    missing: bool = False
    """No data: hold what runs."""
    input_tokens: float | None = None
    output_tokens: float | None = None
    input_variation: float | None = None
    """Standard deviation of prompt lengths over their mean."""


@dataclass(frozen=True, slots=True)
class DemandFile:
    """The whole file."""

    demand: tuple[DemandEntry, ...]
    window_s: float = 180.0
    spread: float = 0.25


BOOK = RuleBook(
    annotations=True,
    rules={
        DemandFile: {
            "window_s": Rule(minimum=0, above=True),
            "spread": Rule(minimum=0, maximum=3),
        },
        DemandEntry: {
            "tokens_per_s": Rule(maximum=1e9),
            "quantiles": Rule(maximum=1e9),
            "counter": NOT_NEGATIVE,
            "input_tokens": Rule(minimum=1),
            "output_tokens": Rule(minimum=1),
            "input_variation": Rule(minimum=0, maximum=20),
        },
    },
)
"""Ranges. A forecast may be negative here: it is clamped to 0 and counted."""


def read_demand(path: Path, fleet: Fleet) -> DemandTable:
    """Demand from a file, its names checked against the fleet.

    Raises:
        InputError: The file cannot be read or is wrong; the message names the first fault with its line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", source=str(path), expected="UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
    return parse_demand(text, str(path), fleet)


def parse_demand(text: str, source: str, fleet: Fleet) -> DemandTable:
    """The same from text; ``source`` names it in errors."""
    tree = read_yaml(text)
    decoder = Decoder(BOOK, faults=list(tree.faults))
    content = decoder.read(DemandFile, tree.value) if not tree.faults else None
    faults = list(decoder.faults)
    if isinstance(content, DemandFile) and not faults:
        faults = _faults(content, fleet)
    if faults or not isinstance(content, DemandFile):
        raise to_errors(faults, InputError, source, tree.lines)[0]
    return _table(content)


def _faults(content: DemandFile, fleet: Fleet) -> list[Fault]:
    known = {
        "model": {model.key for model in fleet.models},
        "workload_class": {kind.name for kind in fleet.classes},
        "tenant": {tenant.name for tenant in fleet.tenants},
        "origin": {site.name for site in fleet.sites},
    }
    faults: list[Fault] = []
    for i, entry in enumerate(content.demand):
        for name, names in known.items():
            value = getattr(entry, name)
            if value not in names:
                expected = one_of(value, names)
                faults.append(
                    Fault(("demand", i, name), f"not in fleet {fleet.name}", value=value, expected=expected)
                )
        given = [entry.tokens_per_s is not None, bool(entry.quantiles), bool(entry.counter), entry.missing]
        forecast_blind = given == [False, True, False, True]
        if sum(given) != 1 and not forecast_blind:
            expected = "exactly one of tokens_per_s, quantiles, counter, missing"
            faults.append(Fault(("demand", i), f"{sum(given)} kinds of demand given", expected=expected))
        if entry.quantiles and len(entry.quantiles) != len(LEVELS):
            expected = f"{len(LEVELS)} numbers, at {', '.join(f'{level:.0%}' for level in LEVELS)}"
            faults.append(
                Fault(("demand", i, "quantiles"), "wrong length", value=len(entry.quantiles), expected=expected)
            )
        if entry.counter and len(entry.counter) != 2:
            faults.append(
                Fault(("demand", i, "counter"), "wrong length", value=len(entry.counter), expected="two samples")
            )
    return faults


def _table(content: DemandFile) -> DemandTable:
    rows: list[DemandRow] = []
    missing: list[tuple[str, str, str, str]] = []
    notes: list[str] = []
    for entry in content.demand:
        key = (entry.model, entry.workload_class, entry.tenant, entry.origin)
        lengths = (entry.input_tokens, entry.output_tokens, entry.input_variation)
        rate = entry.tokens_per_s
        if entry.counter:
            reading = read_counter(entry.counter[0], entry.counter[1], content.window_s)
            rate = reading.per_s
            if reading.kind is CounterKind.RESET:
                notes.append(f"counter of {'/'.join(key)} was reset; counted from 0")
        if entry.quantiles:
            rows.append(DemandRow(*key, entry.quantiles, *lengths))
        if entry.missing or (rate is None and not entry.quantiles):
            missing.append(key)
        elif rate is not None:
            quantiles = spread_quantiles(rate, content.spread)
            rows.append(DemandRow(*key, quantiles, *lengths))
    if missing:
        notes.append(f"{len(missing)} commodities have no data; the replicas of their models are held")
    return demand_table(rows, missing, notes)
