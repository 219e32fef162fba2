"""Numbers over all rows of a fit, whoever holds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.types import FloatArray
from models.fit_peers import Alone, FitPeers, total, weighted_quantile

T = TypeVar("T")
NUMBERS = st.lists(st.tuples(st.floats(-50, 50), st.floats(0.01, 10)), min_size=1, max_size=40)


class ThreadPeers:
    """Workers that are threads of this process."""

    parameters: Mapping[str, object] = {}

    def __init__(self, rank: int, given: list[FloatArray], barrier: threading.Barrier) -> None:
        self.rank, self.given, self.barrier = rank, given, barrier

    def gather(self, values: FloatArray) -> FloatArray:
        self.given[self.rank] = values
        self.barrier.wait()
        everything = np.stack(self.given)
        self.barrier.wait()
        return everything


def together(work: Callable[[int, FitPeers], T], size: int) -> list[T]:
    """Results of ``work(rank, peers)`` of workers that meet."""
    given, barrier = [np.empty(0)] * size, threading.Barrier(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(rank, ThreadPeers(rank, given, barrier)), range(size)))


def test_sums_over_all_workers() -> None:
    assert total(Alone(), 1.0, 2.5) == [1.0, 2.5]
    assert together(lambda rank, peers: total(peers, float(rank), 1.0), 3) == [[3.0, 3.0]] * 3


@given(NUMBERS, st.sampled_from([0.001, 0.1, 0.5, 0.9, 0.999]))
def test_alone_the_quantile_is_numpys(rows: list[tuple[float, float]], level: float) -> None:
    values, weight = np.array(rows).T
    found = weighted_quantile(values, weight, level, Alone())
    below = weight[values <= found + 1e-9].sum() / weight.sum()
    strictly = weight[values < found - 1e-9].sum() / weight.sum()
    assert below >= level - 1e-9
    assert strictly <= level + 1e-9
    assert np.abs(values - found).min() < 1e-9, "a value of the rows"


@given(NUMBERS, st.integers(0, 40), st.sampled_from([0.1, 0.5, 0.9]))
def test_where_rows_are_makes_no_difference(rows: list[tuple[float, float]], cut: int, level: float) -> None:
    values, weight = np.array(rows).T
    whole = weighted_quantile(values, weight, level, Alone())
    shares = [slice(None, cut), slice(cut, None)]
    split = together(
        lambda rank, peers: weighted_quantile(values[shares[rank]], weight[shares[rank]], level, peers), 2
    )
    assert split[0] == split[1]
    ordered = np.sort(values)
    gap = np.searchsorted(ordered, whole + 1e-9) - np.searchsorted(ordered, split[0] + 1e-9)
    # The sums of weights differ in their last bits, so a tie may fall to the neighbour.
    assert abs(int(gap)) <= 1 + int((np.abs(values - whole) < 1e-9).sum())


def test_against_numpy_on_many_rows() -> None:
    random = np.random.default_rng(0)
    values, weight = random.lognormal(0, 1, 20_001), random.uniform(0.5, 2, 20_001)
    for level in (0.01, 0.5, 0.9, 0.99):
        wanted = np.quantile(values, level, weights=weight, method="inverted_cdf")
        assert weighted_quantile(values, weight, level, Alone()) == pytest.approx(float(wanted), rel=1e-12)
