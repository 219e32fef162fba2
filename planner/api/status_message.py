"""The loop's status as the API gives it."""

from __future__ import annotations

from typing import Literal, cast

from planner.api.messages import SettingMessage, StatusMessage, StepMessage, shadow_message
from planner.loop.status import LoopStatus, StepReport


def status_message(status: LoopStatus) -> StatusMessage:
    """The whole status."""
    return StatusMessage(
        leads=status.leads,
        epoch=status.epoch,
        stepping=status.stepping,
        next_step_s=status.next_step_s,
        failures=status.failures,
        watching=None if status.watch is None else status.watch.version,
        trouble=status.trouble,
        last_step=None if status.last_step is None else _step(status.last_step),
        fleet_active=status.fleet.active,
        fleet_attempted=status.fleet.attempted,
        fleet_errors=list(status.fleet.errors),
        sources=list(status.sources),
        settings=[
            SettingMessage(name=name, value=value, source="given" if given else "default")
            for name, value, given in status.settings
        ],
    )


def _step(report: StepReport) -> StepMessage:
    return StepMessage(
        at_s=report.at_s,
        verdict=cast(Literal["publish", "renew", "keep", "failed"], report.verdict),
        reason=report.reason,
        plan_id=report.plan_id,
        version=report.version,
        simulated=shadow_message(report.shadow),
        good_share=None if report.level is None else report.level.good_share,
        notes=list(report.notes),
        seconds=report.seconds,
    )
