"""A guarded model from alarm to promotion, and the peers' recipe that reports compare with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.drift import ErrorBatch
from models.evaluate import evaluate
from models.features import INDEX
from models.guarded import guarded_model
from models.peer_recipe import PeerPredictor
from models.predictor import ResidualPredictor
from models.samples import Samples
from models.training import Trained


def late(count: int, gpu_code: int, factor: float) -> ErrorBatch:
    """Idle TTFT outcomes of one GPU type that took ``factor`` times the predicted median."""
    return ErrorBatch(
        target=0,
        gpu_code=np.full(count, gpu_code),
        band=np.zeros(count, dtype=np.int64),
        decided_s=np.arange(count, dtype=np.float64),
        log_ratio=np.full(count, np.log(factor)),
        covered=np.zeros(count),
        weight=np.ones(count),
    )


def test_f069_drift_hands_over_to_the_prior_and_a_promotion_hands_back(toy_model: Trained) -> None:
    model = toy_model.predictor
    parts = guarded_model(model, {})
    rows = toy_model.test.features[:300].copy()
    rows[:, INDEX["queue_depth"]] = 0.0
    first = rows[:, INDEX["gpu_type"]] == 0
    np.testing.assert_array_equal(parts.guard.predict(rows).ttft_s, model.predict(rows).ttft_s)
    parts.monitor.add(late(100, 0, 1.6))
    answer = parts.guard.predict(rows)
    assert answer.drifted is not None
    np.testing.assert_array_equal(answer.drifted, first)
    np.testing.assert_array_equal(answer.ttft_s[first], model.prior.predict(rows).ttft_s[first])
    np.testing.assert_array_equal(answer.ttft_s[~first], model.predict(rows).ttft_s[~first])
    assert answer.row_source(int(np.flatnonzero(first)[0])) == "prior"
    fresh = ResidualPredictor(replace(toy_model.card, version="v0002"), toy_model.forest)
    assert parts.slot.reload(lambda: fresh)
    after = parts.guard.predict(rows)
    assert after.drifted is None
    assert after.source == "v0002"


def test_the_peers_recipe_learns_from_survivors_alone(toy_samples: Samples) -> None:
    peer = PeerPredictor(toy_samples)
    report = evaluate(peer, toy_samples)
    assert report.overall("ttft_s").median_error < 0.5
    assert set(report.overall("ttft_s").losses) == {"0.5"}
    lost = toy_samples.take(np.arange(len(toy_samples)))
    slow = lost.ttft_s > np.nanquantile(lost.ttft_s, 0.8)
    lost.ttft_bound_s[slow], lost.ttft_s[slow] = lost.ttft_s[slow], np.nan
    blind = PeerPredictor(lost)
    features = toy_samples.features[slow]
    assert np.median(blind.predict(features).ttft_s) < np.median(peer.predict(features).ttft_s)


def test_groups_by_gpu_type_and_load_band_split_the_gpu_type(toy_model: Trained) -> None:
    groups = {group.group: group for group in toy_model.report.groups if group.target == "ttft_s"}
    for name in toy_model.card.gpu_types:
        parts = [group.rows for key, group in groups.items() if key.startswith(f"gpu_load:{name}/")]
        assert sum(parts) == groups[f"gpu_type:{name}"].rows
    assert 0.8 < groups["all"].bias < 1.2
    assert np.isclose(groups["all"].loss, np.mean(list(groups["all"].losses.values())))
