"""Who sends a synthetic stream, from where, to which model."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from data.synth.arrivals import Diurnal, HotSpell


@dataclass(frozen=True, slots=True)
class Assignment:
    """Labels of a stream and the course of its demand.

    Attributes:
        model: Key ``name@version``.
        origins: Origin and its share of the sessions; shares are relative and above 0. Each origin has draws of
            its own, so a hot spell at one leaves the others as they are.
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
        if not names or len(set(names)) < len(names) or min(share for _, share in self.origins) <= 0:
            raise SettingError("bad origins", value=self.origins, expected="distinct names with shares above 0")
        for spell in self.hot_spells:
            if spell.origin not in names:
                raise SettingError("hot spell at an unknown origin", value=spell.origin, expected=", ".join(names))


UNLABELLED = Assignment()


def zipf_shares(n: int, exponent: float = 1.0) -> tuple[float, ...]:
    """Shares of ``n`` tenants with weight ``k ** -exponent`` (k from 1), adding up to 1.

    ServeGen's clients follow it with exponents of 0.9 to 1.15 over their first twenty.
    """
    if n < 1 or exponent < 0:
        raise SettingError("bad Zipf law", value=(n, exponent), expected="n >= 1 and an exponent >= 0")
    weights = [k**-exponent for k in range(1, n + 1)]
    return tuple(weight / sum(weights) for weight in weights)
