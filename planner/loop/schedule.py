"""When steps are due: every so often, or by a cron expression."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.triggers.cron import CronTrigger

from data.errors import SettingError

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LEAST_S, MOST_S = 1.0, 31 * 86_400.0


class Schedule:
    """Moments of steps. Exactly one of both arguments is given.

    Args:
        every_s: Seconds between two steps (1 to 2,678,400); moments lie on multiples of it, so that a restart
            keeps the rhythm.
        cron: Five fields (minute, hour, day, month, weekday), in UTC. Weekdays are names, or numbers: 0 and 7 are
            Sunday. A day of the month and a weekday together are refused: crons differ on what they mean.

    Raises:
        SettingError: None or both are given, or one is wrong.
    """

    def __init__(self, every_s: float | None = None, cron: str | None = None) -> None:
        if (every_s is None) == (cron is None):
            raise SettingError("a schedule is needed", field="every", expected="either every_s or cron")
        if every_s is not None and not LEAST_S <= every_s <= MOST_S:
            raise SettingError("out of range", field="every", value=every_s, expected=f"{LEAST_S:g} s to 31 days")
        self._every_s = every_s
        self._cron: Any = None if cron is None else _cron(cron)

    def next_s(self, now_s: float) -> float:
        """The first moment strictly after ``now_s``, seconds since the epoch.

        However many moments were missed (a long step, a sleeping machine), one step makes up for all of them.
        """
        if self._every_s is not None:
            at_s = (now_s // self._every_s + 1) * self._every_s
            return at_s if at_s > now_s else at_s + self._every_s
        after = datetime.fromtimestamp(now_s, UTC) + timedelta(microseconds=1)
        moment = self._cron.get_next_fire_time(None, after)
        if moment is None:
            raise SettingError("never comes true", field="cron", value=str(self._cron))
        return float(moment.timestamp())


def _cron(text: str) -> Any:
    try:
        trigger = CronTrigger.from_crontab(_with_named_weekdays(text), timezone=UTC)
        if trigger.get_next_fire_time(None, datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError("it never comes true")
    except ValueError as error:
        expected = 'five fields, such as "*/15 * * * *"'
        raise SettingError(
            f"not a cron expression: {error}", field="cron", value=text, expected=expected
        ) from error
    return trigger


def _with_named_weekdays(text: str) -> str:
    """The expression with weekdays as names: the trigger counts them from Monday, every cron from Sunday."""
    fields = text.split()
    if len(fields) != 5 or fields[4] == "*":
        return text
    if fields[2] != "*":
        raise ValueError("a day of the month and a weekday together")
    days: list[str] = []
    for part in fields[4].split(","):
        found = re.fullmatch(r"(?:(\*)|([0-7])(?:-([0-7]))?)(?:/([1-9]))?", part)
        if found is None:
            days.append(part)  # names are the trigger's to check
            continue
        whole, low, high, step = found.groups()
        first = 0 if whole else int(low)
        last = 6 if whole or (step and high is None) else int(high or low)
        if first > last:
            raise ValueError(f"weekdays {part} end before they begin")
        days += [WEEKDAYS[day % 7] for day in range(first, last + 1, int(step or 1))]
    return " ".join([*fields[:4], ",".join(dict.fromkeys(days))])


def parse_duration(text: str, field: str) -> float:
    """Seconds of ``90s``, ``15m``, ``2h``, ``1d`` or a plain number.

    Raises:
        SettingError: It is something else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise SettingError("not a duration", field=field, value=text, expected="a number with s, m, h or d")
    return float(match[1]) * UNITS_S[match[2] or "s"]
