"""What a running router says of itself beside its metrics: what serves, its files, and every option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from router.feeds.stages import Life
from router.flow.flow_desk import FlowDesk
from router.observe.effective_settings import effective_settings
from router.serving.live import LiveRouter
from router.serving.reload import WatchedFile
from router.serving.service_settings import ServiceSettings
from router.slomax.corrections import Corrections


def service_status(
    settings: ServiceSettings, files: Sequence[WatchedFile[Any]], live: LiveRouter
) -> dict[str, Any]:
    """Ready for JSON: ``serving``, ``endpoints`` and the latest ones that are ``gone``, ``files`` with the faults
    of a refused version, ``settings``, ``feedback``.

    ``feedback`` is absent without one; of its corrections those stand there that are not 1.
    """
    serving, now_s = live.serving, live.clock()
    corrected = live.desk.corrected if isinstance(live.desk, FlowDesk) else None
    feedback = {} if corrected is None else {"feedback": _feedback(corrected.corrections)}
    return {
        "serving": {
            "safe": live.safe(),
            "draining": live.draining,
            "fleet": live.state.digest,
            "plan_id": serving.plan_id,
            "model_version": serving.model_version,
            "sites": live.core.sites.rule.name if live.core.sites is not None else "",
        },
        "endpoints": [_life(name, life, now_s) for name, life in list(live.stages.lives.items())],
        "gone": [_life(name, life, now_s) for name, life in list(live.stages.gone)],
        "files": [asdict(file.status) for file in files],
        "settings": [asdict(setting) for setting in effective_settings(settings)],
        **feedback,
    }


def _life(name: str, life: Life, now_s: float) -> dict[str, Any]:
    spent = {stage.value: round(spent_s, 3) for stage, spent_s in life.seconds(now_s).items()}
    return {"id": name, "stage": life.stage.value, "seconds": spent, "probe_failed": life.why}


def _feedback(corrections: Corrections) -> dict[str, list[dict[str, Any]]]:
    pool, tenant = ("model", "workload_class"), ("workload_class", "tenant")
    parts = (
        ("admission", corrections.admission, pool),
        ("repeats", corrections.repeats, pool),
        ("capacity", corrections.capacity, pool),
        ("debt", corrections.debt, tenant),
    )
    return {
        name: [dict(zip(labels, key, strict=True), factor=value) for key, value in sorted(found.items())]
        for name, found, labels in parts
    }
