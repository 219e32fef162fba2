"""The adapter study as rows: running, waiting, memory and first tokens, with two forms of the lengths.

The study tells the means of its lengths, not their spread. Recorded chat requests of another data set (outputs
within 15 % of their mean) and of a chat arena (81 %) bracket it: sequences with more spread hold more memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

from benchmarks.fidelity.adapter_study import Simulated, front_end_s, simulated, study_runs
from benchmarks.fidelity.engine_replay import recorded_run
from benchmarks.fidelity.engines import SET_UPS
from benchmarks.fidelity.rows import Row, error_row, table_row
from data.types import FloatArray


def forms_of_lengths(data: Path) -> dict[str, FloatArray]:
    """Prompt and output tokens of recorded requests, by name; empty if a data set is not there."""
    chat, arena = data / "llmservingsim" / "vllm_runs" / SET_UPS[0].run, data / "vtc" / "chatbot_arena_replay.csv"
    if not (chat.is_dir() and arena.is_file()):
        return {}
    narrow = [(one.input_tokens, one.output_tokens) for one in recorded_run(chat).requests]
    table = csv.read_csv(arena)
    wide = np.column_stack([table.column(name).to_numpy() for name in ("prompt_len", "output_len")])
    return {"narrow": np.array(narrow, dtype=np.float64), "wide": wide.astype(np.float64)}


def compared(data: Path, every: int = 1) -> dict[str, list[Simulated]]:
    """Every so many-th run of the study, by form of the lengths."""
    folder, forms = data / "adapter-serving-h100", forms_of_lengths(data)
    if not forms or not folder.is_dir():
        return {}
    runs, front_s = study_runs(folder), front_end_s(folder)
    return {name: list(simulated(runs[::every], lengths, front_s)) for name, lengths in forms.items()}


def study_rows(data: Path, quick: bool) -> Iterator[Row]:
    """Errors over the runs that keep up with their load, and over those that fall behind."""
    for form, found in compared(data, 6 if quick else 1).items():
        steady = [one for one in found if one.run.keeps_up]
        behind = [one for one in found if not one.run.keeps_up]
        for what, pairs in (
            ("running", [(one.running, one.run.running) for one in steady]),
            ("kv_share", [(one.kv_share, one.run.kv_share) for one in steady]),
            ("ttft", [(one.ttft_s, one.run.ttft_s) for one in steady]),
            ("behind/served", [(one.served, one.run.served) for one in behind]),
            ("behind/running", [(one.running, one.run.running) for one in behind]),
        ):
            yield error_row(f"study/{form}/{what}", _ratio(pairs))
        yield error_row(f"study/{form}/behind/waiting_growth", np.array([_growth_error(one) for one in behind]))
        gaps = [abs(one.waiting - one.run.waiting) for one in steady]
        yield table_row(f"study/{form}/waiting", float(np.median(gaps)), "sequences", None, None, worst=max(gaps))


def markdown(found: Sequence[tuple[Simulated, Simulated]]) -> str:
    """A table over the offered rate: the engine's, then ours with both forms of the lengths."""
    lines = ["| offered/s | TPOT ms | running | KV share | TTFT ms | served/s | queue grows by, /s |"]
    lines.append("| ---: |" + " ---: |" * 6)
    for one, other in found:
        run, three = one.run, (one.run, one, other)
        cells = (
            f"{run.offered:.1f}",
            f"{run.tpot_s * 1e3:.0f}",
            _cell(1, *(x.running for x in three)),
            _cell(1, *(100 * x.kv_share for x in three)) + " %",
            _cell(0, *(1e3 * x.ttft_s for x in three)) if run.keeps_up else "",
            _cell(1, *(x.served for x in three)) if not run.keeps_up else "",
            "0" if run.keeps_up else _cell(1, *(run.offered - x.served for x in three)),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(digits: int, seen: float, *ours: float) -> str:
    return f"{seen:.{digits}f}: " + ", ".join(f"{value:.{digits}f}" for value in ours)


def _growth_error(one: Simulated) -> float:
    """Requests/s by which the queue grows, ours less the run's, as a share of what is offered."""
    return (one.run.served - one.served) / one.run.offered


def _ratio(pairs: Sequence[tuple[float, float]]) -> FloatArray:
    ours, seen = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    ratio: FloatArray = ours / seen - 1.0
    return ratio
