"""The fastest evaluation of small-leaved forests: bit masks of the leaves that a row can still reach.

A row leaves a tree by the first leaf that no test has ruled out. What the tests on one feature rule out follows
from the feature's *rank* among its thresholds alone, so for each rank the masks of all trees are made in advance.
A row then takes one search and one pass of AND over the trees for each feature, and no walk (after QuickScorer:
Lucchese et al., SIGIR 2015; here the masks are summed up by rank). Sums run in tree order in double precision, so
results are bit-equal to those of ``Forest.predict`` and of LightGBM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba.cpython.unsafe.numbers import trailing_zeros

from data.types import FloatArray, IntArray
from models.base import FeatureMatrix
from models.compiled import Forest, Int32Array, check_width
from models.jit import compiled

Masks = npt.NDArray[Any]
"""Unsigned integers wide enough for the leaves of the largest tree."""
MaskArguments: TypeAlias = tuple[IntArray, IntArray, FloatArray, Masks, FloatArray, Int32Array]
"""Arguments of :func:`add_sums` between the rows and the results."""
MOST_BYTES = 32 << 20
"""A forest whose masks would take more is walked instead."""
WIDTHS = (16, 32, 64)
"""Leaves of the largest tree, at most."""
BLOCK = 32
"""Rows whose masks are held at a time."""


@dataclass(frozen=True, slots=True)
class LeafMasks:
    """A forest as masks.

    Attributes:
        used: Columns that some tree tests.
        first: For each used column where its thresholds begin, and at the end where they stop.
        thresholds: Distinct thresholds of each used column, ascending.
        masks: For each used column one row a rank (number of thresholds below the value), then one for a missing
            value; shape (thresholds + 2 · used columns, trees). The leftmost leaf is the lowest bit.
        leaves: Output of each leaf, shape (trees, width).
        output: Forest to which each tree adds.
        outputs: Number of forests.
        features: Columns that a row must have at least.
    """

    used: IntArray
    first: IntArray
    thresholds: FloatArray
    masks: Masks
    leaves: FloatArray
    output: Int32Array
    outputs: int
    features: int

    def predict(self, matrix: FeatureMatrix) -> FloatArray:
        """Raw sums of each forest, shape (outputs, rows)."""
        check_width(matrix, self.features)
        out = np.zeros((self.outputs, matrix.shape[0]))
        add_sums(matrix, *self.arguments, out)
        return out

    @property
    def arguments(self) -> MaskArguments:
        """What :func:`add_sums` needs."""
        return self.used, self.first, self.thresholds, self.masks, self.leaves, self.output


def quickest(forest: Forest) -> Forest | LeafMasks:
    """What evaluates the forest soonest: its masks, if they can be made, else its own walk."""
    return leaf_masks(forest) or forest


def leaf_masks(forest: Forest, most_bytes: int = MOST_BYTES) -> LeafMasks | None:
    """The forest as masks; ``None`` if a tree has more than 64 leaves or the masks would take too much memory."""
    trees = len(forest.root)
    if forest.depth.max(initial=0) >= WIDTHS[-1]:  # so deep a tree has more leaves than there are bits
        return None
    inner = forest.left != np.arange(len(forest.left))
    most_leaves = max((_count_leaves(forest, root) for root in forest.root.tolist()), default=1)
    width = next((width for width in WIDTHS if most_leaves <= width), None)
    used: IntArray = np.unique(forest.feature[inner]).astype(np.int64)
    distinct = [np.unique(forest.threshold[inner & (forest.feature == column)]) for column in used.tolist()]
    rows = sum(len(values) for values in distinct) + 2 * len(used)
    if width is None or rows * trees * width // 8 > most_bytes:
        return None
    first = np.concatenate([[0], np.cumsum([len(values) for values in distinct])]).astype(np.int64)
    masks = np.full((rows, trees), (1 << width) - 1, dtype=f"u{width // 8}")
    leaves = np.zeros((trees, width))
    place = {column: position for position, column in enumerate(used.tolist())}
    for tree, root in enumerate(forest.root.tolist()):
        for node, low, middle in _tests(forest, root, leaves[tree]):
            position = place[int(forest.feature[node])]
            base = int(first[position]) + 2 * position
            rank = int(np.searchsorted(distinct[position], forest.threshold[node])) + 1
            ruled_out = masks.dtype.type((1 << middle) - (1 << low))
            masks[base + rank, tree] &= ~ruled_out
            if not forest.nan_left[node]:
                masks[base + len(distinct[position]) + 1, tree] &= ~ruled_out
    for position, values in enumerate(distinct):
        base = int(first[position]) + 2 * position
        ranks = masks[base : base + len(values) + 1]
        np.bitwise_and.accumulate(ranks, axis=0, out=ranks)
    thresholds = np.concatenate([np.zeros(0), *distinct])
    return LeafMasks(used, first, thresholds, masks, leaves, forest.output, forest.outputs, forest.features)


def _count_leaves(forest: Forest, node: int) -> int:
    left, right = int(forest.left[node]), int(forest.right[node])
    return 1 if left == node else _count_leaves(forest, left) + _count_leaves(forest, right)


def _tests(forest: Forest, root: int, values: FloatArray) -> list[tuple[int, int, int]]:
    """Inner nodes with the leaves ``low`` to ``middle - 1`` on their left; fills ``values`` in order of leaves."""
    found: list[tuple[int, int, int]] = []

    def visit(node: int, low: int) -> int:
        left = int(forest.left[node])
        if left == node:
            values[low] = forest.value[node]
            return low + 1
        middle = visit(left, low)
        found.append((node, low, middle))
        return visit(int(forest.right[node]), middle)

    visit(root, 0)
    return found


@compiled
def add_sums(
    matrix: FeatureMatrix,
    used: IntArray,
    first: IntArray,
    thresholds: FloatArray,
    masks: Masks,
    leaves: FloatArray,
    output: Int32Array,
    out: FloatArray,
) -> None:
    """Add the output of every tree to ``out`` (outputs, rows)."""
    trees = masks.shape[1]
    alive = np.empty((BLOCK, trees), dtype=masks.dtype)
    for start in range(0, matrix.shape[0], BLOCK):
        rows = min(BLOCK, matrix.shape[0] - start)
        for row in range(rows):
            mine = alive[row]
            mine[:] = ~mine.dtype.type(0)
            for place in range(len(used)):
                ruled = masks[mask_row(matrix[start + row, used[place]], thresholds, first, place)]
                for tree in range(trees):
                    mine[tree] &= ruled[tree]
        for tree in range(trees):
            sums, values = out[output[tree]], leaves[tree]
            for row in range(rows):
                sums[start + row] += values[trailing_zeros(alive[row, tree])]


@compiled
def mask_row(x: float, thresholds: FloatArray, first: IntArray, place: int) -> int:
    """Row of the masks for the value ``x`` of a used column: by bisection, how many thresholds are below it."""
    low, high = first[place], first[place + 1]
    if x != x:
        return int(high + 2 * place + 1)
    while low < high:
        middle = (low + high) >> 1
        if thresholds[middle] < x:
            low = middle + 1
        else:
            high = middle
    return int(low + 2 * place)
