"""Every benchmark that ``make bench`` runs can be imported and has the function that it calls."""

from __future__ import annotations

import importlib
import inspect

import pytest

from benchmarks.run import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_has_rows(name: str) -> None:
    module = importlib.import_module(name)
    assert list(inspect.signature(module.rows).parameters) == ["quick"]


def test_none_is_named_twice() -> None:
    assert len(set(MODULES)) == len(MODULES)
