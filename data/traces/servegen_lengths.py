"""ServeGen length distributions: prompt and output tokens of each client over time.

Two kinds of file. *Datasets* (JSON): ``{client: {window start: {"input_tokens": "{length: probability, ...}",
...}}}`` or the inner part for a single client, the innermost dictionaries written as text; image models have
``text_tokens`` and counts of other media instead of ``input_tokens``, and all of these are prompt tokens.
*Quantiles* (CSV): ``client, window_s, what, mean, p1 ... p99, min, max``; lengths are drawn by interpolating.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from data.errors import TraceError
from data.traces.checks import MAX_TOKENS
from data.traces.csv_lines import csv_blocks, text_of
from data.traces.report import ReadReport
from data.traces.source import TextSource
from data.types import FloatArray, IntArray

MAX_BYTES = 1 << 30
_PAIR = re.compile(r"\s*(\d{1,9})\s*:\s*([0-9.eE+-]{1,30})\s*")
_MEDIA = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")
_QUANTILES = {"min": 0.0, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}
_QUANTILES |= {"p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Distribution:
    """Lengths by their cumulative probability (rising, ending at 1)."""

    lengths: FloatArray
    cumulative: FloatArray
    stepped: bool
    """Only the lengths themselves occur; otherwise values between them do too."""

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        """Tokens of ``count`` requests, at least 1."""
        u = rng.random(count)
        if self.stepped:
            places = np.minimum(np.searchsorted(self.cumulative, u, side="right"), len(self.lengths) - 1)
            tokens = self.lengths[places]
        else:
            tokens = np.rint(np.interp(u, self.cumulative, self.lengths))
        return np.maximum(tokens, 1).astype(np.int64)

    def mean(self) -> float:
        """Mean length, tokens."""
        weights = np.diff(self.cumulative, prepend=0.0)
        if self.stepped:
            return float((weights * self.lengths).sum())
        return float((weights[1:] * (self.lengths[1:] + self.lengths[:-1]) / 2.0).sum())


@dataclass(slots=True)
class _Series:
    starts: list[float] = field(default_factory=list)
    prompts: list[tuple[Distribution, ...]] = field(default_factory=list)
    outputs: list[Distribution] = field(default_factory=list)


class Lengths:
    """Length distributions by client and time."""

    def __init__(self, clients: dict[str, _Series]) -> None:
        self._clients = {name: series for name, series in clients.items() if series.starts}
        self._names = sorted(self._clients)

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    def __len__(self) -> int:
        return len(self._clients)

    def draw(self, client: str, at_s: float, rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        """Prompt and output tokens of ``count`` requests of this client in the window of ``at_s``.

        The client's window at or before that time is taken, else its first. A client without any lengths borrows
        those of a client drawn evenly for all of the ``count`` requests.
        """
        series = self._clients.get(client)
        if series is None:
            series = self._clients[self._names[int(rng.integers(len(self._names)))]]
        place = max(0, bisect_right(series.starts, at_s) - 1)
        prompt = np.zeros(count, dtype=np.int64)
        for part in series.prompts[place]:
            prompt += part.draw(rng, count)
        return prompt, series.outputs[place].draw(rng, count)

    def means(self, client: str, at_s: float) -> tuple[float, float] | None:
        """Mean prompt and output tokens of this client at that time; ``None`` for a client without lengths."""
        series = self._clients.get(client)
        if series is None:
            return None
        place = max(0, bisect_right(series.starts, at_s) - 1)
        return sum(part.mean() for part in series.prompts[place]), series.outputs[place].mean()


def read_lengths(source: TextSource, report: ReadReport) -> Lengths:
    """All length distributions of one file, in memory (at most 1 GiB of text).

    Raises:
        TraceError: Neither of the two kinds of file, or no window has lengths.
    """
    csv = source.head().lstrip()[:1] != b"{"
    lengths = Lengths(_quantiles(source) if csv else _datasets(source))
    if not len(lengths):
        raise TraceError("has no length distribution", source=str(source.path))
    report.notes.append(f"lengths of {len(lengths)} clients from {source.path.name}")
    return lengths


def _datasets(source: TextSource) -> dict[str, _Series]:
    try:
        found = msgspec.json.decode(source.document(MAX_BYTES), type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"is no ServeGen dataset: {error}", source=str(source.path)) from error
    if any("output_tokens" in window for window in found.values()):
        found = {source.path.name: found}  # one client: its windows stand at the top
    return {client: _series(windows, source) for client, windows in found.items()}


def _series(windows: dict[str, Any], source: TextSource) -> _Series:
    series = _Series()
    try:
        ordered = sorted((float(start), start) for start in windows)
    except ValueError as error:
        raise TraceError("a window must start at a number of seconds", source=str(source.path)) from error
    for start_s, start in ordered:
        window = windows[start]
        if not isinstance(window, dict):
            raise TraceError("a window must be an object", source=str(source.path), field=start)
        names = ("input_tokens",) if "input_tokens" in window else _MEDIA
        prompts = [parse_distribution(str(window.get(name, "{}")), source) for name in names]
        output = parse_distribution(str(window.get("output_tokens", "{}")), source)
        usable = tuple(part for part in prompts if part is not None and part.lengths[-1] > 0)
        if usable and output is not None:
            series.starts.append(start_s)
            series.prompts.append(usable)
            series.outputs.append(output)
    return series


def parse_distribution(text: str, source: TextSource) -> Distribution | None:
    """``{length: probability, ...}`` as a distribution; ``None`` if it is empty.

    Raises:
        TraceError: Not of that form, or probabilities that do not add up to something.
    """
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    if not inner:
        return None
    pairs = [_PAIR.fullmatch(part) for part in inner.split(",")]
    try:
        found = sorted((int(pair[1]), float(pair[2])) for pair in pairs if pair is not None)
    except ValueError:
        found = []
    weights = np.array([weight for _, weight in found], dtype=np.float64)
    if len(found) != len(pairs) or not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
        raise TraceError(
            "a length distribution does not parse",
            source=str(source.path),
            value=inner[:40],
            expected='"{length: probability, ...}"',
        )
    cumulative = np.cumsum(weights) / weights.sum()
    return Distribution(np.array([length for length, _ in found], dtype=np.float64), cumulative, stepped=True)


def _quantiles(source: TextSource) -> dict[str, _Series]:
    """Windows of clients for which both prompt and output quantiles stand in the file."""
    needed = ("client", "windows", "what", *_QUANTILES)
    scrap = ReadReport(source=str(source.path), format="quantiles")
    halves: dict[tuple[str, float], dict[str, Distribution]] = {}
    for block in csv_blocks(source, scrap, needed, (), None):
        for number, (client, window, what, *cells) in block.rows:
            try:
                key = (text_of(client), float(window))
                half = _interpolated([float(cell) for cell in cells])
            except ValueError as error:
                raise TraceError(str(error), source=str(source.path), line=number) from error
            halves.setdefault(key, {})[text_of(what)] = half
    for reason, tally in scrap.rejected.items():
        raise TraceError(f"{reason}: {tally.detail}", source=str(source.path), line=tally.lines[0])
    clients: dict[str, _Series] = {}
    for (name, start_s), pair in sorted(halves.items()):
        if {"input", "output"} <= pair.keys():
            series = clients.setdefault(name, _Series())
            series.starts.append(start_s)
            series.prompts.append((pair["input"],))
            series.outputs.append(pair["output"])
    return clients


def _interpolated(values: list[float]) -> Distribution:
    lengths = np.maximum.accumulate(np.array(values))
    if not np.all(np.isfinite(lengths)) or lengths[-1] > MAX_TOKENS:
        raise ValueError("quantiles must be finite numbers of tokens")
    return Distribution(lengths, np.array(list(_QUANTILES.values())), stepped=False)
