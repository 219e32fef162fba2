"""Classes by prompt length."""

from __future__ import annotations

import numpy as np
import pytest

from data.errors import SettingError
from data.traces.length_classes import LengthClasses, class_by_length
from data.types import TraceBatch


def batch(*input_tokens: int) -> TraceBatch:
    n = len(input_tokens)
    ids = np.arange(n)
    ones = np.ones(n, dtype=np.int64)
    return TraceBatch(
        request_id=ids,
        arrival_s=ids.astype(float),
        input_tokens=np.array(input_tokens),
        output_tokens=ones,
        output_budget=ones,
        hash_offsets=np.zeros(n + 1, dtype=np.int64),
        hashes=np.zeros(0, dtype=np.uint64),
    )


def test_a_prompt_at_the_limit_belongs_to_the_longer_class() -> None:
    rule = LengthClasses(("short", "middle", "long"), (100, 1000))
    (out,) = class_by_length([batch(1, 99, 100, 999, 1000, 50_000)], rule)
    assert list(out.workload_class) == ["short", "short", "middle", "middle", "long", "long"]


@pytest.mark.parametrize(
    ("names", "limits"), [(("a",), ()), (("a", "b"), ()), (("a", "b", "c"), (9, 9)), (("a", "b"), (0,))]
)
def test_limits_must_ascend_and_fit(names: tuple[str, ...], limits: tuple[int, ...]) -> None:
    with pytest.raises(SettingError):
        LengthClasses(names, limits)
