"""The ``--ray`` option: work on a cluster instead of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.run_pool import RunPool

if TYPE_CHECKING:
    from models.training_backend import TrainingBackend

ray_option = click.option(
    "--ray",
    "ray",
    metavar="ADDRESS",
    help="Work on a Ray cluster: HOST:PORT, 'auto', or 'local' to start one here (extra 'ray').",
)


def run_pool(ray: str | None, workers: int) -> RunPool:
    """Where simulated runs go: ``workers`` processes here, or the cluster."""
    if ray is None:
        return RunPool(workers)
    from planner.ray_pool import RayPool

    return RunPool(RayPool(ray))


@contextmanager
def training_backend(ray: str | None, store: Path) -> Iterator[TrainingBackend]:
    """Where models are trained: in this process, or on the cluster, whose workers must see ``store`` and the logs.

    Raises:
        InputError: Ray is not installed, or no cluster answers.
    """
    from models.training_backend import LocalBackend

    if ray is None:
        yield LocalBackend()
        return
    from planner.ray_pool import RayPool
    from planner.ray_training import RayBackend

    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ray-", dir=store.absolute()) as scratch, RayPool(ray) as pool:
        yield RayBackend(pool, Path(scratch))
