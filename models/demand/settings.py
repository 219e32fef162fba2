"""Settings of demand forecasts."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError

LEVELS = (0.1, 0.2, 0.5, 0.8, 0.9, 0.95)
"""Quantile levels unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """What is forecast, and how forecasters are compared.

    Attributes:
        levels: Quantile levels, rising, inside (0, 1), 0.5 among them.
        horizon_steps: Windows ahead (1 to 100,000).
        season_s: Length of the season, seconds (above 0); a day.
        near_steps: Leads up to this one have a winner of their own, and so have those beyond it (1 or more).
        origin_every_steps: Windows from one origin of the back-test to the next (1 or more); 5 meets every part of
            an hour in turn at windows of ten minutes.
        refit_every_steps: Windows from one fit to the next in the back-test (1 or more).
        fits: Fits of the back-test (2 or more); the windows after the last fit are held out from the choice.
        seed: Of all draws.
        threads: OpenMP threads of the boosted model (1 or more); the result does not depend on it.
        short_term: Forecast to scale by, over windows of seconds: rules that follow trends and short seasons
            compete instead of the boosted forests; the trend serves where nothing has proved to be better.
    """

    levels: tuple[float, ...] = LEVELS
    horizon_steps: int = 144
    season_s: float = 86_400.0
    near_steps: int = 6
    origin_every_steps: int = 5
    refit_every_steps: int = 144
    fits: int = 4
    seed: int = 0
    threads: int = 1
    short_term: bool = False

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.levels, self.levels[1:], strict=False))
        inside = all(0 < level < 1 for level in self.levels)
        if not (rising and inside and 0.5 in self.levels):
            raise SettingError(
                "not a list of levels",
                field="levels",
                value=self.levels,
                expected="rising, inside (0, 1), with 0.5",
            )
        if not 0 < self.season_s < 1e9:
            raise SettingError("out of range", field="season_s", value=self.season_s, expected="seconds above 0")
        for name, low, high in (
            ("horizon_steps", 1, 100_000),
            ("near_steps", 1, 100_000),
            ("origin_every_steps", 1, 100_000),
            ("refit_every_steps", 1, 1_000_000),
            ("fits", 2, 1000),
            ("seed", 0, 2**31 - 1),
            ("threads", 1, 1024),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("out of range", field=name, value=value, expected=f"{low} to {high}")

    @property
    def bands(self) -> tuple[tuple[int, int], ...]:
        """Bands of leads (first, last), in windows, each with a winner of its own."""
        if self.horizon_steps <= self.near_steps:
            return ((1, self.horizon_steps),)
        return (1, self.near_steps), (self.near_steps + 1, self.horizon_steps)
