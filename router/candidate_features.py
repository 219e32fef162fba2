"""Feature rows of one request at candidate endpoints, built from the endpoint table for any predictor."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from models.base import CategoryCodes, FeatureMatrix
from models.feature_rows import RowArguments, put_rows, row_arguments
from models.features import NAMES, EndpointKind, hardware_rows
from models.signals import SignalSettings, fading, load_columns
from router.endpoints import EndpointTable
from router.types import FleetView, RouteRequest


def endpoint_kinds(table: EndpointTable) -> list[EndpointKind]:
    """What each endpoint of a table is, in its order."""
    return [
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


class CandidateFeatures:
    """Builds feature matrices for one table; the buffer and the fixed columns are kept between calls.

    Args:
        table: The endpoint table; fixed columns are built again when its version changes.
        codes: Category codes of the predictor that will read the rows.
        signals: How reports fade.
    """

    def __init__(self, table: EndpointTable, codes: CategoryCodes, signals: SignalSettings | None = None) -> None:
        self._table = table
        self._fades = fading(signals or SignalSettings())
        self._renew(codes)

    def _renew(self, codes: CategoryCodes) -> None:
        self._version = self._table.version
        self._codes = codes
        self._buffer = np.empty((len(self._table), len(NAMES)))
        self._hardware = hardware_rows(endpoint_kinds(self._table), codes)

    def build(
        self,
        request: RouteRequest,
        rows: IntArray,
        hit_tokens: FloatArray,
        view: FleetView,
        codes: CategoryCodes,
    ) -> FeatureMatrix:
        """Rows for the endpoints ``rows`` with ``hit_tokens`` aligned; valid until the next call."""
        arguments = self.arguments(request, rows, hit_tokens, view, codes)
        put_rows(*arguments)
        return arguments[-1]

    def arguments(
        self,
        request: RouteRequest,
        rows: IntArray,
        hit_tokens: FloatArray,
        view: FleetView,
        codes: CategoryCodes,
    ) -> RowArguments:
        """The same for compiled code that fills the rows, the last argument, itself."""
        if codes is not self._codes or self._version != self._table.version:
            self._renew(codes)
        return row_arguments(
            (float(request.input_tokens), float(request.output_budget), float(request.expected_output_tokens)),
            rows,
            hit_tokens,
            view.now_s,
            self._fades,
            load_columns(view.endpoints),
            self._hardware,
            self._buffer[: len(rows)],
        )
