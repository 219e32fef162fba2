"""Cuts the placement model by models: groups of columns that only the shared resources join.

Two models are in one group only if a promise spans both. What joins the groups are the rows of GPUs, power,
ingress, host memory and start budgets: rows ``Σ a v <= b`` with a >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.csgraph

from data.types import FloatArray, IntArray
from solver.linear import BoolArray, LinearModel
from solver.matrix import PlacementMatrix
from solver.problem import PlacementProblem

RESOURCE_ROWS = ("gpus", "power", "ingress", "host_memory", "start_budget")


@dataclass(frozen=True, slots=True)
class ModelGroups:
    """The whole model and its cut.

    Attributes:
        model: The whole model.
        by_column: The same matrix, column by column.
        columns: The columns of each group.
        of_column: Group of each column.
        of_model: Group of each model of the problem.
        shared: The rows that join the groups.
        promised: Whether a promise was made on a group.
        sharers: For each pool the groups that may stand there.
    """

    model: LinearModel
    by_column: Any
    columns: tuple[IntArray, ...]
    of_column: IntArray
    of_model: IntArray
    shared: IntArray
    promised: BoolArray
    sharers: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def per_group(self, worth: FloatArray) -> FloatArray:
        """Sums of a figure of the columns over each group."""
        total: FloatArray = np.bincount(self.of_column, worth, len(self)).astype(np.float64)
        return total


@dataclass(frozen=True, slots=True)
class PartModel:
    """The model of some groups, with all others held where they are."""

    model: LinearModel
    columns: IntArray
    rows: IntArray


def cut_by_model(problem: PlacementProblem, built: PlacementMatrix) -> ModelGroups:
    """The groups, in the order of their first model."""
    model = built.model
    of_model = _column_models(problem, built)
    shared = np.zeros(model.matrix.shape[0], dtype=bool)
    for name in RESOURCE_ROWS:
        shared[built.rows[name]] = True
    label = _joined_models(model, of_model, shared, len(problem.models))
    of_column = label[of_model]
    order = np.argsort(of_column, kind="stable")
    count = int(label.max(initial=-1)) + 1
    ends = np.searchsorted(of_column[order], np.arange(1, count))
    promised = np.zeros(count, dtype=bool)
    for span in (built.columns.missed_replicas, built.columns.missed_flows, built.columns.missed_covers):
        promised[of_column[span]] = True
    places = problem.placements
    sharers = tuple(np.unique(label[places.model[places.pool == p]]) for p in range(len(problem.pools.gpus)))
    return ModelGroups(
        model=model,
        by_column=model.matrix.tocsc(),
        columns=tuple(np.split(order, ends)) if count else (),
        of_column=of_column,
        of_model=label,
        shared=np.flatnonzero(shared),
        promised=promised,
        sharers=sharers,
    )


def free_columns(groups: ModelGroups, values: FloatArray, activity: FloatArray, columns: IntArray) -> PartModel:
    """The model of some columns, all others held at ``values``.

    ``activity`` is the matrix times ``values``. The values of the columns themselves are always allowed, whatever
    dust earlier answers left on a row.
    """
    whole = groups.model
    part = groups.by_column[:, columns]
    rows = np.unique(part.indices)
    part = part.tocsr()[rows]
    inside = part @ values[columns]
    rest = activity[rows] - inside
    model = LinearModel(
        whole.objective[columns],
        part,
        np.minimum(whole.row_lower[rows] - rest, inside),
        np.maximum(whole.row_upper[rows] - rest, inside),
        whole.lower[columns],
        whole.upper[columns],
        whole.integer[columns],
    )
    return PartModel(model, columns, rows)


def shared_rows_hold(
    groups: ModelGroups, activity: FloatArray, columns: IntArray, change: FloatArray, dust: float
) -> bool:
    """Whether the shared rows hold after a change of some columns, or are no worse than before."""
    moved = (groups.by_column[:, columns] @ change)[groups.shared]
    limit = groups.model.row_upper[groups.shared]
    over = activity[groups.shared] + moved - limit
    slack = dust * (1.0 + np.where(np.isfinite(limit), np.abs(limit), 0.0))
    return bool(((over <= slack) | (moved <= slack)).all())


def _column_models(problem: PlacementProblem, built: PlacementMatrix) -> IntArray:
    """The model that each column is about."""
    places, jobs, columns = problem.placements, problem.commodities, built.columns
    out = np.zeros(columns.count, dtype=np.int64)
    out[columns.replicas] = out[columns.starts] = places.model
    out[columns.prewarmed] = places.model[columns.warm_place]
    out[columns.loads] = places.model[columns.load_place]
    out[columns.flows] = jobs.model[columns.flow_job]
    out[columns.served] = np.repeat(jobs.model, jobs.width.shape[1])
    out[columns.bursts] = [burst.model for burst in problem.bursts]
    out[columns.totals] = out[columns.missed_covers] = [cover.model for cover in problem.covers]
    out[columns.missed_replicas] = [_first(places.model[p.placements]) for p in problem.replica_promises]
    out[columns.missed_flows] = [_first(jobs.model[p.commodities]) for p in problem.flow_promises]
    return out


def _first(models: IntArray) -> int:
    """The first model; any will do for a promise that nothing can keep."""
    return int(models[0]) if len(models) else 0


def _joined_models(model: LinearModel, of_model: IntArray, shared: BoolArray, count: int) -> IntArray:
    """Label of each model; models that a row other than a shared one joins have the same."""
    matrix = model.matrix
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    own = ~shared[row]
    row, member = row[own], of_model[matrix.indices[own]]
    first = np.full(matrix.shape[0], count, dtype=np.int64)
    np.minimum.at(first, row, member)
    ties = scipy.sparse.csr_matrix((np.ones(len(row)), (first[row], member)), shape=(count, count))
    labels: IntArray = scipy.sparse.csgraph.connected_components(ties, directed=False)[1].astype(np.int64)
    return labels
