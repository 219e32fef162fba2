"""How a model and its answer travel between the planner and the solver's own process.

One message = 8 bytes of length (little endian) and an ``.npz`` archive without pickled objects.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import scipy.sparse

from solver.linear import BACKENDS, Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart

HEADER_BYTES = 8


def frame(body: bytes) -> bytes:
    """The message on the wire."""
    return len(body).to_bytes(HEADER_BYTES, "little") + body


def pack_request(
    model: LinearModel, limits: SolveLimits, start: WarmStart | None, backend: Backend, deadline_s: float
) -> bytes:
    """Everything the child needs; ``deadline_s`` is on the machine's monotonic clock."""
    arrays: dict[str, Any] = {
        "objective": model.objective,
        "data": model.matrix.data,
        "indices": model.matrix.indices,
        "indptr": model.matrix.indptr,
        "shape": np.array(model.matrix.shape),
        "row_lower": model.row_lower,
        "row_upper": model.row_upper,
        "lower": model.lower,
        "upper": model.upper,
        "integer": model.integer,
        "numbers": np.array([model.offset, deadline_s, limits.relative_gap, limits.absolute_gap]),
        "counts": np.array([limits.node_limit or 0, limits.seed, BACKENDS.index(backend), start is not None]),
    }
    if start is not None:
        arrays |= {"start_columns": start.columns, "start_values": start.values}
    return _archive(arrays)


def unpack_request(body: bytes) -> tuple[LinearModel, SolveLimits, WarmStart | None, Backend, float]:
    """What ``pack_request`` packed; the limits carry a placeholder time that the deadline replaces."""
    with np.load(io.BytesIO(body), allow_pickle=False) as box:
        matrix = scipy.sparse.csr_matrix((box["data"], box["indices"], box["indptr"]), shape=tuple(box["shape"]))
        offset, deadline_s, relative, absolute = box["numbers"].tolist()
        nodes, seed, backend, started = box["counts"].tolist()
        model = LinearModel(
            box["objective"],
            matrix,
            box["row_lower"],
            box["row_upper"],
            box["lower"],
            box["upper"],
            box["integer"],
            offset,
        )
        start = WarmStart(box["start_columns"], box["start_values"]) if started else None
    limits = SolveLimits(relative_gap=relative, absolute_gap=absolute, node_limit=nodes or None, seed=seed)
    return model, limits, start, BACKENDS[backend], deadline_s


def pack_answer(answer: LinearSolution) -> bytes:
    """The child's answer."""
    return _archive(
        {
            "status": np.array(answer.status.value),
            "values": answer.values,
            "row_duals": answer.row_duals,
            "numbers": np.array([answer.bound, answer.solve_s]),
            "detail": np.array(answer.detail),
        }
    )


def unpack_answer(body: bytes) -> LinearSolution:
    """What ``pack_answer`` packed."""
    with np.load(io.BytesIO(body), allow_pickle=False) as box:
        bound, solve_s = box["numbers"].tolist()
        return LinearSolution(
            SolveStatus(str(box["status"])), box["values"], bound, box["row_duals"], solve_s, str(box["detail"])
        )


def _archive(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
