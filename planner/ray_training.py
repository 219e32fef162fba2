"""Training on a Ray cluster (extra ``ray``): windows are read by workers, who then fit one forest together.

Rows stay in the cluster's object store. The workers of a fit run Ray's own LightGBM trainer, which finds them and
tells them of each other; LightGBM then sums its histograms over all of them (``tree_learner=data``). LightGBM
knows the monotone method ``advanced`` on one machine only and falls back to ``basic`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from data.types import FloatArray, IntArray
from models.base import BoolArray
from models.fit_shard import Fitted, ShardSettings, fit_shard
from models.samples import Samples, join_samples
from models.training_backend import ReadPart, StockFacts, add_counts, check_rows
from planner.ray_peers import Meeting, RayPeers
from planner.ray_pool import RayPool
from planner.work_pool import WorkError, in_order

PORT_TRIES = 2
"""A worker's port is drawn before LightGBM opens it; somebody else may take it meanwhile."""


class RayBackend:
    """Reads and fits on the workers of a cluster.

    Args:
        pool: An open pool of the cluster.
        scratch: Folder that all workers see; Ray keeps its notes of a run there.
        workers: Workers that fit together; ``None`` = one for each processor of the cluster.
    """

    def __init__(self, pool: RayPool, scratch: Path, workers: int | None = None) -> None:
        self._pool = pool
        self._scratch = scratch
        self._workers = workers or pool.workers

    def read(self, parts: Sequence[ReadPart], on_part: Callable[[], None] = lambda: None) -> RayStock:
        """See ``models.training_backend.TrainingBackend``."""
        read: dict[int, tuple[Any, StockFacts]] = {}
        for index, reference, facts in self._pool.map_held(_read, parts):
            read[index] = (reference, facts)
            on_part()
        held = [read[index][0] for index in range(len(parts))]
        found = [read[index][1] for index in range(len(parts))]
        dropped: dict[str, int] = {}
        skipped: dict[str, str] = {}
        for facts in found:
            add_counts(dropped, facts.dropped)
            skipped |= facts.skipped
        check_rows(sum(len(facts.run) for facts in found), dropped)
        whole = StockFacts(
            decided_s=np.concatenate([facts.decided_s for facts in found]),
            run=np.concatenate([facts.run for facts in found]),
            censored=sum(facts.censored for facts in found),
            codes=found[0].codes,
            dropped=dropped,
            skipped=skipped,
        )
        sizes = np.array([len(facts.run) for facts in found])
        return RayStock(self._pool, self._scratch, self._workers, whole, held, sizes)


class RayStock:
    """Rows in the object store of a cluster, part by part."""

    def __init__(
        self, pool: RayPool, scratch: Path, workers: int, facts: StockFacts, held: list[Any], sizes: IntArray
    ) -> None:
        self.facts = facts
        self._pool, self._scratch, self._workers = pool, scratch, workers
        self._held, self._starts = held, np.concatenate([[0], np.cumsum(sizes)])

    def fit(self, rows: BoolArray, settings: ShardSettings) -> Fitted:
        """See ``models.training_backend.SampleStock``.

        Raises:
            WorkError: The workers failed, or could not be had.
        """
        shares = _shares(self._masks(rows), self._workers)
        for _ in range(PORT_TRIES - 1):
            with suppress(WorkError):
                return self._fit(shares, settings)
        return self._fit(shares, settings)

    def take(self, rows: BoolArray) -> Samples:
        """See ``models.training_backend.SampleStock``."""
        jobs = [(self._held[part], mask) for part, mask in self._masks(rows)]
        return join_samples(list(in_order(self._pool, _take, jobs)), self.facts.codes, self.facts.dropped)

    def _masks(self, rows: BoolArray) -> list[tuple[int, BoolArray]]:
        """Parts that hold some of the rows, with the mask of each."""
        masks = np.split(rows, self._starts[1:-1])
        return [(part, mask) for part, mask in enumerate(masks) if mask.any()]

    def _fit(self, shares: list[list[tuple[int, BoolArray]]], settings: ShardSettings) -> Fitted:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.lightgbm import LightGBMTrainer

        ray = self._pool.ray
        meeting = ray.remote(num_cpus=0)(Meeting).remote(len(shares))
        held = [[(self._held[part], mask) for part, mask in share] for share in shares]
        trainer = LightGBMTrainer(
            _fit_on_worker,
            train_loop_config={"shares": held, "settings": settings, "meeting": meeting},
            scaling_config=ScalingConfig(
                num_workers=len(shares), resources_per_worker={"CPU": settings.boost.threads}
            ),
            run_config=RunConfig(storage_path=str(self._scratch), failure_config=FailureConfig(max_failures=0)),
        )
        try:
            fitted: Fitted = trainer.fit().return_value
        except ray.train.TrainingFailedError as error:
            raise WorkError(f"the workers could not fit together: {error}") from error
        finally:
            ray.kill(meeting)
        return fitted


def _read(part: ReadPart) -> tuple[Samples, StockFacts]:
    """On a worker: read a part, and tell of its rows."""
    read = part()
    samples = read.samples
    facts = StockFacts(
        decided_s=samples.decided_s,
        run=samples.run,
        censored=int(np.isnan(samples.ttft_s).sum()),
        codes=samples.codes,
        dropped=samples.dropped,
        skipped=read.skipped,
    )
    return samples, facts


def _take(job: tuple[Any, BoolArray]) -> Samples:
    """On a worker: some rows of a part."""
    import ray

    reference, rows = job
    samples: Samples = ray.get(reference)
    return samples.take(rows)


def _shares(masks: list[tuple[int, BoolArray]], workers: int) -> list[list[tuple[int, BoolArray]]]:
    """Parts dealt to the workers, each to the one with the fewest rows; neighbours in time part."""
    shares: list[list[tuple[int, BoolArray]]] = [[] for _ in range(min(workers, len(masks)))]
    rows = [0] * len(shares)
    for part, mask in masks:
        least = rows.index(min(rows))
        shares[least].append((part, mask))
        rows[least] += int(mask.sum())
    return shares


def _fit_on_worker(config: dict[str, Any]) -> Fitted:
    """On each worker of a fit: bring the own rows here, then fit with the others."""
    import ray
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    parts = [ray.get(reference).take(rows) for reference, rows in config["shares"][rank]]
    samples = join_samples(parts, parts[0].codes, parts[0].dropped)
    with _network() as parameters:
        return fit_shard(samples, config["settings"], RayPeers(config["meeting"], rank, parameters))


@contextmanager
def _network() -> Iterator[dict[str, object]]:
    """LightGBM's links to the other workers, open for all forests of a fit, and what each must be told of them."""
    import lightgbm
    from ray.train.lightgbm import get_network_params

    links = get_network_params()
    workers = int(links["num_machines"])
    if workers == 1:
        yield {}
        return
    # A booster closes its links when it goes, and the port cannot be opened again at once. So one that learns
    # nothing holds them, and those that learn find them open.
    rows: FloatArray = np.zeros((2, 1))
    holder = lightgbm.Booster({"verbosity": -1}, lightgbm.Dataset(rows, label=rows[:, 0]))
    holder.set_network(links["machines"], int(links["local_listen_port"]), num_machines=workers)
    try:
        yield {"num_machines": workers, "tree_learner": "data", "pre_partition": True}
    finally:
        holder.free_network()
