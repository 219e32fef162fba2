"""Reads LightGBM's text format into a :class:`~models.compiled.Forest`, without LightGBM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.errors import ModelError
from models.compiled import Forest

_CATEGORICAL = 1
_DEFAULT_LEFT = 2
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = 0, 1, 2


@dataclass
class _Nodes:
    """Columns of all nodes read so far."""

    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    nan_left: list[bool] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, feature: int, threshold: float, nan_left: bool, left: int, right: int, value: float) -> None:
        self.feature.append(feature)
        self.threshold.append(threshold)
        self.nan_left.append(nan_left)
        self.left.append(left)
        self.right.append(right)
        self.value.append(value)


def forest_from_text(texts: Sequence[str]) -> Forest:
    """One forest an element of ``texts`` (each as ``Booster.model_to_string`` writes it), in that order.

    Raises:
        ModelError: reason ``format``, if a text is damaged or uses what the walker does not evaluate
            (categorical splits, zero as missing, linear leaves).
    """
    nodes = _Nodes()
    roots: list[int] = []
    depths: list[int] = []
    outputs: list[int] = []
    features = 0
    for position, text in enumerate(texts):
        head, trees = _split(text)
        features = max(features, int(_entry(head, "max_feature_idx")) + 1)
        for tree in trees:
            roots.append(len(nodes.feature))
            depths.append(_append_tree(tree, nodes))
            outputs.append(position)
    return Forest(
        feature=np.array(nodes.feature, dtype=np.int32),
        threshold=np.array(nodes.threshold),
        nan_left=np.array(nodes.nan_left, dtype=bool),
        left=np.array(nodes.left, dtype=np.int32),
        right=np.array(nodes.right, dtype=np.int32),
        value=np.array(nodes.value),
        root=np.array(roots, dtype=np.int32),
        depth=np.array(depths, dtype=np.int32),
        output=np.array(outputs, dtype=np.int32),
        outputs=len(texts),
        features=features,
    )


def _split(text: str) -> tuple[dict[str, str], Iterator[dict[str, str]]]:
    """The header's entries and those of each tree; fails unless the text is whole."""
    body, mark, _ = text.partition("end of trees")
    if not text.startswith("tree") or not mark:
        raise ModelError("not a whole LightGBM model text", reason="format")
    head, *trees = body.split("\nTree=")
    return _entries(head), (_entries(tree) for tree in trees)


def _entries(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _entry(entries: dict[str, str], key: str) -> str:
    if key not in entries:
        raise ModelError(f"LightGBM model text lacks {key!r}", reason="format")
    return entries[key]


def _append_tree(tree: dict[str, str], nodes: _Nodes) -> int:
    """Append one tree: inner nodes first, then its leaves; returns its depth."""
    try:
        leaves = [float(value) for value in _entry(tree, "leaf_value").split()]
        if tree.get("is_linear", "0") != "0":
            raise ModelError("linear leaves are not supported", reason="format")
        base = len(nodes.feature)
        inner = len(leaves) - 1
        columns: list[list[str]] = [
            _entry(tree, key).split() if inner else []
            for key in ("split_feature", "threshold", "decision_type", "left_child", "right_child")
        ]
        for feature, cut, kind, left, right in zip(*columns, strict=True):
            threshold = float(cut)
            nan_left = _nan_goes_left(int(kind), threshold)
            children = [base + (c if c >= 0 else inner + ~c) for c in (int(left), int(right))]
            nodes.add(int(feature), threshold, nan_left, children[0], children[1], 0.0)
    except ValueError as error:
        raise ModelError(f"damaged tree in LightGBM model text: {error}", reason="format") from error
    if len(nodes.feature) != base + inner:
        raise ModelError("damaged tree in LightGBM model text: wrong number of nodes", reason="format")
    for position, value in enumerate(leaves, start=base + inner):
        nodes.add(0, np.inf, True, position, position, value)
    return _depth(nodes, base, len(nodes.feature))


def _nan_goes_left(decision: int, threshold: float) -> bool:
    """Where LightGBM sends a NaN: the default side, or the side of 0 if training saw no missing value."""
    if decision & _CATEGORICAL:
        raise ModelError("categorical splits are not supported", reason="format")
    missing = decision >> 2 & 3
    if missing == _MISSING_ZERO:
        raise ModelError("zero as missing value is not supported", reason="format")
    return bool(decision & _DEFAULT_LEFT) if missing == _MISSING_NAN else threshold >= 0.0


def _depth(nodes: _Nodes, root: int, end: int) -> int:
    """Steps to the deepest leaf; fails on a child outside the tree, a loop or an unreachable node."""
    level, depth, seen = [root], 0, 0
    while True:
        seen += len(level)
        if any(not root <= node < end for node in level) or seen > end - root:
            raise ModelError("damaged tree in LightGBM model text: wrong child", reason="format")
        inner = [node for node in level if nodes.left[node] != node]
        if not inner:
            break
        level = [child for node in inner for child in (nodes.left[node], nodes.right[node])]
        depth += 1
    if seen != end - root:
        raise ModelError("damaged tree in LightGBM model text: node without parent", reason="format")
    return depth
