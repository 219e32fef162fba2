"""Compile a numeric function with numba, keeping its Python type for the checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as machine code: made at the first call, kept on disk beside the source, free of the GIL."""
    return cast("Function", numba.njit(cache=True, nogil=True)(function))
