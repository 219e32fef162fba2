"""What a running router says of itself beside its metrics: what serves, its files, and every option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from router.observe.effective_settings import effective_settings
from router.serving.live import LiveRouter
from router.serving.reload import WatchedFile
from router.serving.service_settings import ServiceSettings


def service_status(
    settings: ServiceSettings, files: Sequence[WatchedFile[Any]], live: LiveRouter
) -> dict[str, Any]:
    """Ready for JSON: ``serving``, ``files`` with the faults of a refused version, and ``settings``."""
    serving = live.serving
    return {
        "serving": {
            "safe": live.safe(),
            "draining": live.draining,
            "fleet": live.state.digest,
            "plan_id": serving.plan_id,
            "model_version": serving.model_version,
        },
        "files": [asdict(file.status) for file in files],
        "settings": [asdict(setting) for setting in effective_settings(settings)],
    }
