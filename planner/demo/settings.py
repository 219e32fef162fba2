"""Sizes of the demo, chosen so that it ends within five minutes on two cores."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How much the demo runs.

    Attributes:
        rate_per_s: Requests/s of all tenants together (above 0, at most 10,000).
        duration_s: Simulated length of each run (above 0, at most a day).
        seeds: Seeds of the comparison (1 or more; intervals need 5).
        first_seed: The comparison runs with seeds from here on; training runs use others, so that nothing that is
            reported was trained or planned on.
    """

    rate_per_s: float = 36.0
    duration_s: float = 400.0
    seeds: int = 5
    first_seed: int = 1

    def __post_init__(self) -> None:
        checks = (
            ("rate_per_s", 0 < self.rate_per_s <= 10_000, "above 0, at most 10000"),
            ("duration_s", 0 < self.duration_s <= 86_400, "above 0, at most 86400"),
            ("seeds", self.seeds >= 1, "1 or more"),
            ("first_seed", self.first_seed >= 0, "0 or more"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )

    @property
    def training_seeds(self) -> range:
        """Seeds of the logged runs, away from those of the comparison."""
        first = self.first_seed + 1000
        return range(first, first + 4)
