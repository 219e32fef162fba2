"""Demand forecasts against persistence and seasonal-naive: weighted quantile loss with a rolling origin.

ServeGen m-large and m-mid, requests/s of each client and of the whole tier, windows of 600 s, days 0–10. Every
day from day 3 the forecasters are fitted on all that went before and forecast from origins 50 minutes apart; from
day 5 each day's winners are chosen on the days before it alone and scored on that day, over all windows up to 1 h
and up to 24 h ahead. The references carry the usual intervals: quantiles of their own errors relative to the
recent level. Where the data cannot be found, a synthetic tier stands in and the row ids end in ``/synthetic``.

``…/hindsight`` is the loss of whichever forecaster would have been best for each series, band and day, known only
afterwards: no choice among these forecasters can do better. ``…/same-intervals`` compares with persistence whose
intervals widen with the unrest of the series, as ours do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from data.traces.report import ReadReport
from data.traces.servegen_rates import read_demand
from data.traces.source import TextSource
from data.types import FloatArray
from models.demand.backtest import Backtest, backtest
from models.demand.catalogue import MIXES, forecasters
from models.demand.history import History
from models.demand.outages import find_outages
from models.demand.point_rules import Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster, Scale
from models.demand.selection import choose
from models.demand.settings import ForecastSettings

TIERS = ("m-large", "m-mid")
STEP_S = 600.0
DAY = 144
FIRST_FIT, FIRST_TEST = 3, 5
HORIZONS = {"1h": 6, "24h": 144}
TARGET = 0.10
REFERENCES = ("persistence_plain", "seasonal_naive_plain")


def tier_rates(name: str) -> tuple[FloatArray, str]:
    """Requests/s, shape (clients, windows), and a mark for row ids."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside)) / "servegen"
    path = folder / f"{name}.rates.day0-10.csv.gz"
    if not path.is_file():
        return synthetic_rates(TIERS.index(name)), "/synthetic"
    demand = read_demand(TextSource(path), ReadReport(str(path), "servegen"))
    starts = np.unique(demand.start_s)
    rates = np.zeros((len(demand.clients), len(starts)))
    rates[demand.client, np.searchsorted(starts, demand.start_s)] = demand.rate_per_s
    return rates, ""


def synthetic_rates(seed: int, clients: int = 20, days: int = 11) -> FloatArray:
    """A tier of clients with a daily season and a level that wanders back to its mean."""
    rng = np.random.default_rng(seed)
    windows = days * DAY
    mean = rng.lognormal(1.0, 1.2, clients)
    wander = np.zeros((clients, windows))
    for t in range(1, windows):
        wander[:, t] = 0.97 * wander[:, t - 1] + 0.12 * rng.standard_normal(clients)
    day = 2.0 * np.pi * (np.arange(windows)[None, :] / DAY + 0.2 * rng.standard_normal((clients, 1)))
    rate = mean[:, None] * np.exp(0.4 * np.sin(day) + wander)
    return rng.poisson(rate * STEP_S) / STEP_S


def measure(rates: FloatArray, quick: bool) -> Backtest:
    """Back-test of all forecasters and the references; the whole tier is the last series. Quick: fewer days."""
    outage = find_outages(rates, STEP_S)
    values = np.where(outage, np.nan, np.concatenate([rates, rates.sum(axis=0, keepdims=True)]))
    names = (*(f"client {row}" for row in range(len(rates))), "tier")
    history = History(names, values, STEP_S, values.shape[1] * STEP_S)
    settings = ForecastSettings()
    rules = (Persistence(), SeasonalNaive())
    plain = [ResidualForecaster(rule, settings.levels, settings.horizon_steps, Scale.LEVEL) for rule in rules]
    days = history.windows // DAY
    if quick:
        history, days = history.until(8 * DAY), 8
    times = [day * DAY for day in range(FIRST_FIT, days)]

    def tell(note: str) -> None:
        print(f"   {note}", file=sys.stderr, flush=True)

    return backtest(history, [*forecasters(settings), *plain], MIXES, settings, times, tell)


def score(test: Backtest, series: slice, horizon: int) -> dict[str, float]:
    """Weighted quantile loss of the references, of the chosen and in hindsight."""
    bands = ForecastSettings().bands
    own = [name for name in test.names if name not in REFERENCES]
    scored = test.fitted >= FIRST_TEST * DAY
    observed = test.observed[series][:, scored, :horizon]
    total = float(np.nansum(observed))
    found = {
        name: float(np.nansum(test.losses[place, series][:, scored, :horizon])) / total
        for place, name in enumerate(test.names)
    }
    rivals = only(test, own)
    chosen = hindsight = 0.0
    for fit in np.unique(test.fitted[scored]).tolist():
        choice = choose(rivals, bands, fit, fit - DAY)
        for band, (first, last) in enumerate(bands):
            part = slice(first - 1, min(last, horizon))
            losses = np.nansum(rivals.losses[:, :, test.fitted == fit, part], axis=(2, 3))
            places = [own.index(row[band]) for row in choice.winner]
            chosen += float(losses[places, np.arange(losses.shape[1])][series].sum())
            hindsight += float(losses.min(axis=0)[series].sum())
    return found | {"chosen": chosen / total, "hindsight": hindsight / total}


def only(test: Backtest, names: list[str]) -> Backtest:
    """The back-test of some of its candidates."""
    places = [test.names.index(name) for name in names]
    return Backtest(
        tuple(names), test.series, test.origins, test.fitted, test.losses[places], test.observed, test.failures
    )


def rows(quick: bool) -> list[dict[str, Any]]:
    """Gain over the better reference, for the tier and for its clients; then the floor and the sterner rival."""
    found = []
    for tier in TIERS:
        rates, mark = tier_rates(tier)
        test = measure(rates, quick)
        for what, series in (("tier", slice(-1, None)), ("clients", slice(0, -1))):
            for label, horizon in HORIZONS.items():
                losses = score(test, series, horizon)
                best = min(REFERENCES, key=lambda name: losses[name])
                base = f"forecast/{tier}/{what}/{label}"
                found.append(_row(f"{base}{mark}", losses, "chosen", best, None if mark else TARGET))
                found.append(_row(f"{base}/hindsight{mark}", losses, "hindsight", best, None))
                found.append(_row(f"{base}/same-intervals{mark}", losses, "chosen", "persistence", None))
    return found


def _row(name: str, losses: dict[str, float], ours: str, reference: str, target: float | None) -> dict[str, Any]:
    gain = 1.0 - losses[ours] / losses[reference]
    return {
        "id": name,
        "area": "forecast",
        "value": gain,
        "unit": "less loss",
        "reference": f"{reference} {losses[reference]:.4f}, {ours} {losses[ours]:.4f}",
        "ratio": losses[ours] / losses[reference],
        "target": None if target is None else f">= {target:g}",
        "met": None if target is None else gain >= target,
        "losses": losses,
    }


def main() -> None:
    """Print the rows of the full run."""
    for row in rows(quick="--quick" in sys.argv[1:]):
        print(
            f"{row['id']:<46} {row['value']:>8.3f}  {row['reference']:<60} {row['target'] or '':<8} {row['met']}"
        )


if __name__ == "__main__":
    main()
