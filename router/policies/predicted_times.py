"""Predicted TTFT and TPOT of one request at many endpoints, through any latency predictor."""

from __future__ import annotations

from dataclasses import replace

from data.types import FloatArray, IntArray
from models.base import LatencyPredictor
from models.features import EndpointKind, feature_matrix, hardware_rows
from models.physics import PriorPredictor
from models.signals import SignalSettings, observe
from router.endpoints import EndpointTable
from router.types import FleetView, RouteRequest


class PredictedTimes:
    """Medians of a predictor; without one, those of the closed-form prior, which stand for its means."""

    def __init__(self, table: EndpointTable, predictor: LatencyPredictor | None) -> None:
        self._predictor: LatencyPredictor = predictor or PriorPredictor()
        kinds = [
            EndpointKind(
                gpu_type=spec.gpu_type,
                gpus=spec.gpus,
                model=spec.model,
                batch_token_budget=spec.batch_token_budget,
                kv_capacity_tokens=spec.kv_capacity_tokens,
                times=spec.times,
            )
            for spec in table.specs
        ]
        self._hardware = hardware_rows(kinds, self._predictor.codes)
        self._settings = SignalSettings()

    def medians(
        self, request: RouteRequest, rows: IntArray, hit_tokens: FloatArray, view: FleetView
    ) -> tuple[FloatArray, FloatArray]:
        """TTFT and TPOT in seconds at the endpoints ``rows``; ``hit_tokens`` has the same shape."""
        features = feature_matrix(
            float(request.input_tokens),
            hit_tokens,
            float(request.output_budget),
            # The peer's predictor knows nothing of what an endpoint was sent lately, nor of expected lengths.
            replace(observe(view.endpoints, rows, view.now_s, self._settings), prefill_load=None),
            self._hardware[rows],
        )
        prediction = self._predictor.predict(features)
        column = prediction.median_column
        return prediction.ttft_s[:, column], prediction.tpot_s[:, column]
