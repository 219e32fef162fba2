"""Numba's compiler with a type, and with numpy's rules for division."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function compiled at its first call, kept on disk, without the interpreter's lock.

    Compiled code on disk does not notice that a constant of another module has changed: hand such values over as
    arguments.
    """
    return cast("Callable[P, T]", numba.njit(cache=True, nogil=True, error_model="numpy")(function))
