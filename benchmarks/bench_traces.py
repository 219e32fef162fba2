"""Speed and memory of trace reading: a file in TokenFleet's own format and one of Mooncake JSON lines.

Files of about ``--megabytes`` (and of twice that) are generated in a temporary folder and read by a child process
each, which reports rows/s and its peak memory. Flat memory means that twice the file takes at most 10 % more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data.traces.mooncake import write_mooncake
from data.traces.native import write_native
from data.types import TraceBatch

BLOCK_TOKENS = 512
BATCH_ROWS = 8192
TARGETS = {"native": 1e6, "mooncake": 1e5}
FLAT = 1.10
CHILD = """
import json, resource, sys, time
from pathlib import Path
from data.traces.registry import open_trace
reader = open_trace(Path(sys.argv[1]))
started, started_cpu = time.perf_counter(), time.process_time()
rows = blocks = 0
for batch in reader.batches():
    rows += len(batch)
    blocks += len(batch.hashes)
took_s, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
assert reader.report.rejected_rows == 0, reader.report.rejected
print(json.dumps({"rows": rows, "blocks": blocks, "took_s": took_s, "cpu_s": cpu_s, "peak_mb": peak_mb}))
"""


def generated(rows: int, seed: int = 0) -> Iterator[TraceBatch]:
    """Requests like those of a chat service: about 12,000 tokens in, 24 blocks, a third of them seen before."""
    rng = np.random.default_rng(seed)
    now_s, next_block = 0.0, 1
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        arrival = now_s + np.cumsum(rng.exponential(0.29, count))
        now_s = float(arrival[-1])
        n_in = np.minimum(rng.lognormal(9.0, 0.9, count).astype(np.int64) + 1, 120_000)
        n_out = rng.integers(1, 700, count)
        counts = -(-n_in // BLOCK_TOKENS)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ids = np.arange(next_block, next_block + int(offsets[-1]), dtype=np.uint64)
        next_block += len(ids)
        yield TraceBatch(
            request_id=np.arange(first, first + count, dtype=np.int64),
            arrival_s=arrival,
            input_tokens=n_in,
            output_tokens=n_out,
            output_budget=np.full(count, 4096, dtype=np.int64),
            hash_offsets=offsets.astype(np.int64),
            hashes=_shared(ids, offsets, rng),
            block_tokens=BLOCK_TOKENS,
            tenant=[f"tenant-{number}" for number in rng.integers(0, 6, count).tolist()],
        )


def _shared(ids: np.ndarray, offsets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same ids, but a third of the prompts begin with the blocks of the prompt before."""
    found = ids.copy()
    for row in np.flatnonzero(rng.random(len(offsets) - 1) < 0.33).tolist():
        if row:
            span = min(offsets[row + 1] - offsets[row], offsets[row] - offsets[row - 1])
            found[offsets[row] : offsets[row] + span] = found[offsets[row - 1] : offsets[row - 1] + span]
    return found


def write(kind: str, path: Path, rows: int) -> None:
    (write_native if kind == "native" else write_mooncake)(generated(rows), path)


def rows_for(kind: str, folder: Path, megabytes: float) -> int:
    """Rows that make a file of about that size."""
    probe = folder / f"probe.{kind}"
    write(kind, probe, 4 * BATCH_ROWS)
    size = probe.stat().st_size
    probe.unlink()
    return max(BATCH_ROWS, int(4 * BATCH_ROWS * megabytes * 1e6 / size))


def measure(path: Path) -> dict[str, float]:
    """Rows, seconds and peak memory of reading one file in a process of its own."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def read_both(kind: str, folder: Path, megabytes: float) -> list[dict[str, float]]:
    """Measurements of a file and of one twice as large."""
    rows = rows_for(kind, folder, megabytes)
    found = []
    for factor in (1, 2):
        path = folder / f"{factor}.{kind}"
        write(kind, path, factor * rows)
        measured = measure(path)
        found.append({**measured, "file_mb": path.stat().st_size / 1e6})
        path.unlink()
    return found


def result_rows(kind: str, found: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Result rows of one format."""
    once, twice = found
    speed = once["rows"] / once["took_s"]
    growth = twice["peak_mb"] / once["peak_mb"]
    return [
        {
            "id": f"traces.{kind}.rows_per_s",
            "area": "traces",
            "value": speed,
            "unit": "rows/s",
            "reference": (
                f"{once['file_mb']:.0f} MB, {once['blocks'] / once['rows']:.1f} blocks a row, "
                f"{once['rows'] / once['cpu_s']:,.0f} rows per s of processor time"
            ),
            "ratio": speed / TARGETS[kind],
            "target": f">= {TARGETS[kind]:.0e}",
            "met": speed >= TARGETS[kind],
        },
        {
            "id": f"traces.{kind}.peak_mb",
            "area": "traces",
            "value": twice["peak_mb"],
            "unit": "MB",
            "reference": f"{once['peak_mb']:.0f} MB at half the file",
            "ratio": growth,
            "target": f"<= {FLAT} of half",
            "met": growth <= FLAT,
        },
    ]


def rows(quick: bool) -> list[dict[str, Any]]:
    """All result rows: files of 100 MB when quick, of 1 GB otherwise."""
    return measured_rows(100.0 if quick else 1000.0)


def measured_rows(megabytes: float, folder: Path | None = None) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        return [row for kind in TARGETS for row in result_rows(kind, read_both(kind, Path(name), megabytes))]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000.0, help="size of the smaller file")
    parser.add_argument("--folder", type=Path, help="where the temporary files go")
    options = parser.parse_args(argv)
    print(f"{'id':<28}{'value':>12} {'unit':<8}{'ratio':>7}  {'target':<16}{'met':<6}reference")
    for row in measured_rows(options.megabytes, options.folder):
        value, ratio = f"{row['value']:,.0f}", f"{row['ratio']:.2f}"
        met = "yes" if row["met"] else "NO"
        print(
            f"{row['id']:<28}{value:>12} {row['unit']:<8}{ratio:>7}  {row['target']:<16}{met:<6}{row['reference']}"
        )


if __name__ == "__main__":
    main()
