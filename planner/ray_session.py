"""A connection to a Ray cluster, or to one started on this machine for as long as it is needed (extra ``ray``)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from data.errors import InputError

LOCAL = "local"
"""The address that stands for a cluster of this machine alone, which ends with the session."""
ANSWER_S = 5.0
"""A head that accepts no connection within this time is taken to be absent."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the behaviour to come; without it Ray warns at each start
    "RAY_TRAIN_V2_ENABLED": "1",
}


@contextmanager
def ray_session(address: str, cpus: int | None = None) -> Iterator[Any]:
    """Connect to Ray and give its module; what was connected before stays so.

    Args:
        address: ``HOST:PORT`` of a cluster's head, ``auto`` for a cluster that this machine belongs to, or
            ``local`` to start one here without dashboard.
        cpus: Processors of a cluster that is started here; ``None`` = those of the machine.

    Raises:
        InputError: Ray is not installed, or no cluster answers at the address.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    here: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False} if address == LOCAL else {}
    try:
        _check_answers(address)
        ray.init(address=address, log_to_driver=False, logging_level="error", **here)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster: {str(error).splitlines()[0]}",
            field="--ray",
            value=address,
            expected="HOST:PORT, auto or local",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """``OSError`` if nobody listens at ``HOST:PORT``: Ray itself would end the whole process."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()


def load_ray() -> Any:
    """The Ray module.

    Raises:
        InputError: The extra is not installed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.train
    except ImportError as error:
        raise InputError(
            "Ray is not installed", field="--ray", expected="pip install 'tokenfleet[ray]'"
        ) from error
    return ray
