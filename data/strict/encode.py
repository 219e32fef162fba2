"""Frozen dataclasses to plain values (dict, list, text, number) under the same keys that the reader expects."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from data.strict.rules import RuleBook


def to_plain(value: Any, book: RuleBook, keep_defaults: bool = True) -> Any:
    """``value`` as plain data, keys in field order.

    Args:
        value: A dataclass instance, or anything such an instance may hold.
        book: Gives the document key of each field.
        keep_defaults: Whether fields that hold their default are written.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            book.key(type(value), item.name): to_plain(getattr(value, item.name), book, keep_defaults)
            for item in dataclasses.fields(value)
            if keep_defaults or getattr(value, item.name) != item.default
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_plain(item, book, keep_defaults) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item, book, keep_defaults) for key, item in value.items()}
    return value
