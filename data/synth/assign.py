"""Who sends a synthetic stream, from where, to which model."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from data.synth.arrivals import Diurnal, HotSpell

MAX_SHARE = 1e9
"""Largest relative share: far beyond any use, and far from where products overflow."""
MAX_EXPONENT = 100.0
"""Largest exponent of a Zipf law: all but the first weight have vanished by then."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Labels of a stream and the course of its demand.

    Attributes:
        model: Key ``name@version``.
        origins: Origin and its share of the sessions; shares are relative, above 0, at most 1e9. Each origin has
            draws of its own, so a hot spell at one leaves the others as they are.
        hot_spells: Windows of raised demand, each at one of the origins.
        diurnal: Daily curve; ``None`` = flat.
    """

    model: str = ""
    tenant: str = ""
    workload_class: str = ""
    origins: tuple[tuple[str, float], ...] = (("", 1.0),)
    hot_spells: tuple[HotSpell, ...] = ()
    diurnal: Diurnal | None = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.origins]
        sound = all(0 < share <= MAX_SHARE for _, share in self.origins)
        if not names or len(set(names)) < len(names) or not sound:
            expected = f"distinct names with shares above 0, at most {MAX_SHARE:g}"
            raise SettingError("bad origins", value=self.origins, expected=expected)
        for spell in self.hot_spells:
            if spell.origin not in names:
                raise SettingError("hot spell at an unknown origin", value=spell.origin, expected=", ".join(names))


UNLABELLED = Assignment()


def zipf_shares(n: int, exponent: float = 1.0) -> tuple[float, ...]:
    """Shares of ``n`` tenants with weight ``k ** -exponent`` (k from 1), adding up to 1.

    ServeGen's clients follow it with exponents of 0.9 to 1.15 over their first twenty.
    """
    if n < 1 or not 0 <= exponent <= MAX_EXPONENT:
        expected = f"n >= 1 and an exponent of 0 to {MAX_EXPONENT:g}"
        raise SettingError("bad Zipf law", value=(n, exponent), expected=expected)
    weights = [k**-exponent for k in range(1, n + 1)]
    return tuple(weight / sum(weights) for weight in weights)
