"""Evaluation of LightGBM forests of any shape: bit-equal to ``Booster.predict`` and free of LightGBM.

All forests of a model lie in one set of flat arrays. A leaf is a node whose children are itself, so that a walk of
fixed length needs no test for the end; rows go eight at a time through each tree, so that their memory reads
overlap. Sums run in tree order in double precision, as LightGBM's do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from data.errors import ModelError
from data.types import FloatArray
from models.base import FeatureMatrix

Int32Array = npt.NDArray[np.int32]
LANES = 8
"""Rows walked together; the walker's inner loops are unrolled over them."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Several boosted forests over the same features.

    Attributes:
        feature: Column a node tests; leaves hold 0.
        threshold: Go left if the value is at most this; leaves hold +inf.
        nan_left: Whether a missing value (NaN) goes left.
        left, right: Child nodes; a leaf points to itself.
        value: Output of a leaf; 0 for inner nodes.
        root: First node of each tree.
        depth: Steps from the root to the deepest leaf of each tree.
        output: Forest to which each tree adds.
        outputs: Number of forests.
        features: Columns that a row must have at least.
    """

    feature: Int32Array
    threshold: FloatArray
    nan_left: npt.NDArray[np.bool_]
    left: Int32Array
    right: Int32Array
    value: FloatArray
    root: Int32Array
    depth: Int32Array
    output: Int32Array
    outputs: int
    features: int

    def predict(self, matrix: FeatureMatrix) -> FloatArray:
        """Raw sums of each forest, shape (outputs, rows)."""
        check_width(matrix, self.features)
        out = np.zeros((self.outputs, matrix.shape[0]))
        _walk(
            np.ascontiguousarray(matrix),
            self.feature,
            self.threshold,
            self.nan_left,
            self.left,
            self.right,
            self.value,
            self.root,
            self.depth,
            self.output,
            out,
        )
        return out


def check_width(matrix: FeatureMatrix, features: int) -> None:
    """Raise ``ModelError`` (reason ``schema``) unless there are rows with at least so many columns."""
    if matrix.ndim != 2 or matrix.shape[1] < features:
        message = f"matrix of shape {matrix.shape} for a forest over {features} features"
        raise ModelError(message, reason="schema")


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _walk(
    matrix: FeatureMatrix,
    feature: Int32Array,
    threshold: FloatArray,
    nan_left: npt.NDArray[np.bool_],
    left: Int32Array,
    right: Int32Array,
    value: FloatArray,
    root: Int32Array,
    depth: Int32Array,
    output: Int32Array,
    out: FloatArray,
) -> None:
    rows = matrix.shape[0]
    nodes = np.empty(LANES, dtype=np.int32)
    for tree in range(root.shape[0]):
        target = output[tree]
        steps = depth[tree]
        for start in range(0, rows, LANES):
            lanes = min(LANES, rows - start)
            for lane in range(lanes):
                nodes[lane] = root[tree]
            for _ in range(steps):
                for lane in range(lanes):
                    node = nodes[lane]
                    x = matrix[start + lane, feature[node]]
                    go_left = (x <= threshold[node]) | ((x != x) & nan_left[node])
                    nodes[lane] = left[node] if go_left else right[node]
            for lane in range(lanes):
                out[target, start + lane] += value[nodes[lane]]
