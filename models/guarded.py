"""A serving model with its drift watch, put together once for the service and the simulator alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from data.outcome_sink import RecordSink
from models.base import LatencyPredictor
from models.drift import DriftMonitor, DriftSettings
from models.drift_guard import DriftGuarded
from models.drift_watch import DriftWatch
from models.features import EndpointKind
from models.physics import PriorPredictor
from models.predictor import ResidualPredictor
from models.samples import KindKey
from models.slot import PredictorSlot


@dataclass(frozen=True, slots=True)
class GuardedModel:
    """The parts that serve one model slot.

    Attributes:
        slot: Where a new version is swapped in; that ends every alarm.
        guard: What policies predict with: the slot's model, or the prior for groups that have drifted.
        watch: The record sink that must see every decision and outcome.
    """

    slot: PredictorSlot
    guard: DriftGuarded
    watch: DriftWatch

    @property
    def monitor(self) -> DriftMonitor:
        """State of every group."""
        return self.guard.monitor


def guarded_model(
    model: LatencyPredictor,
    kinds: Mapping[KindKey, EndpointKind],
    onward: RecordSink | None = None,
    settings: DriftSettings | None = None,
) -> GuardedModel:
    """Put a model behind its guard.

    Args:
        model: What serves at first. The prior that stands in for it has the model's own constants and quantiles.
        kinds: Hardware by the names of the log.
        onward: Takes every record too, such as the log.
        settings: When a group counts as drifted.
    """
    slot, monitor = PredictorSlot(model), DriftMonitor(settings)
    prior = model.prior if isinstance(model, ResidualPredictor) else PriorPredictor()
    return GuardedModel(slot, DriftGuarded(slot, prior, monitor), DriftWatch(slot, monitor, kinds, onward=onward))
