"""Training: which rows count, censoring, splits, determinism, promotion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import LogError, ModelError, SettingError
from data.types import Status
from models.calibration import calibrate, censored_quantile, levelled, load_band, rising
from models.features import INDEX, EndpointKind
from models.gbm import BoostSettings, fit_target
from models.promotion import promotion_verdict
from models.samples import KindKey, Samples, samples_from_tables
from models.splits import SplitSettings, split_samples
from models.store import ModelStore
from models.training import Trained, TrainingSettings, publish, train

Kinds = dict[KindKey, EndpointKind]
ToyTable = Callable[..., pa.Table]


def with_column(table: pa.Table, name: str, values: list[object]) -> pa.Table:
    position = table.column_names.index(name)
    return table.set_column(position, name, pa.array(values, table.schema.field(name).type))


def test_f067_only_latency_samples_are_kept(toy_table: ToyTable, toy_kinds: Kinds) -> None:
    """Client errors, refusals, failures (also mid-stream) and rows without an end are counted, not learned."""
    table = toy_table(8, 0)
    status: list[object] = [
        Status.COMPLETED,
        Status.FAILED,
        Status.CANCELLED,
        Status.REJECTED,
        Status.CLIENT_ERROR,
    ]
    table = with_column(table, "status", [*status, None, Status.CANCELLED, Status.COMPLETED])
    ttft = table.column("ttft_s").to_pylist()
    ttft[6] = None  # cancelled before the first token
    ttft[7] = None  # says completed, but without a time
    table = with_column(table, "ttft_s", ttft)
    samples = samples_from_tables([table], toy_kinds)
    assert samples.dropped == {"failed": 1, "rejected": 1, "client_error": 1, "no_outcome": 1, "no_time": 1}
    assert len(samples) == 3
    assert np.isnan(samples.ttft_s).tolist() == [False, False, True]
    assert samples.ttft_bound_s[2] == table.column("e2e_s")[6].as_py()
    assert np.isnan(samples.tpot_s).tolist() == [False, True, True]  # a cancelled stream gives no TPOT


def test_unknown_hardware_and_lengths_are_counted(toy_table: ToyTable, toy_kinds: Kinds) -> None:
    table = toy_table(6, 0)
    table = with_column(table, "gpu_type", ["fast", None, "odd", "slow", "slow", "fast"])
    table = with_column(table, "input_tokens", [None if i == 3 else 9000 for i in range(6)])
    table = with_column(table, "hit_tokens", [9001 if i == 4 else 0 for i in range(6)])
    samples = samples_from_tables([table], toy_kinds)
    assert samples.dropped == {"unknown_hardware": 2, "missing_prompt_length": 2}
    with pytest.raises(ModelError, match="no usable latency sample") as caught:
        samples_from_tables([table], {})
    assert caught.value.reason == "data"
    with pytest.raises(LogError, match="kv_use"):
        samples_from_tables([table.drop_columns(["kv_use"])], toy_kinds)


def test_dictionary_columns_read_like_plain_ones(toy_table: ToyTable, toy_kinds: Kinds) -> None:
    table = toy_table(50, 0)
    coded = table.set_column(
        table.column_names.index("gpu_type"), "gpu_type", table.column("gpu_type").dictionary_encode()
    )
    a, b = (samples_from_tables([each], toy_kinds).features for each in (table, coded))
    np.testing.assert_array_equal(a, b)


def test_censored_rows_lift_the_fit() -> None:
    """Rows cut off at a time-out are lower bounds: a fit that drops them answers too low."""
    random = np.random.default_rng(0)
    features = np.zeros((6000, len(INDEX)))
    features[:, 0] = random.integers(0, 2, 6000)
    truth = 1.0 * features[:, 0] + random.normal(0, 0.5, 6000)
    cut = 1.2
    censored = truth > cut
    seen = np.minimum(truth, cut)
    settings = BoostSettings(mean_trees=30, quantile_trees=60)

    def upper(mask: np.ndarray, kept: np.ndarray) -> float:
        from models.forest_text import forest_from_text

        fit = fit_target(features[kept], seen[kept], mask[kept], np.ones(kept.sum()), (0.5, 0.9), settings)
        sums = forest_from_text(fit.texts).predict(np.array([np.r_[1.0, np.zeros(len(INDEX) - 1)]]))
        return fit.base[0] + float(sums[0, 0] + sums[1, 0])

    everything = np.ones(6000, dtype=bool)
    used = upper(censored, everything)
    dropped = upper(censored & False, ~censored)
    assert used == pytest.approx(1.0, abs=0.06)  # the true median of that group
    assert dropped < 0.9


def test_product_limit_quantile() -> None:
    scores = np.array([1.0, 2.0, 3.0, 4.0])
    none, even = np.zeros(4, dtype=bool), np.ones(4)
    assert censored_quantile(scores, none, even, 0.5) == 3.0  # 0.5 · 5/4 of four rows
    assert censored_quantile(scores, none, even, 0.9) == 4.0
    assert censored_quantile(scores, none, np.array([7.0, 1.0, 1.0, 1.0]), 0.5) == 1.0
    # A bound at 2 passes its share on to the later rows.
    assert censored_quantile(scores, np.array([False, True, False, False]), even, 0.5) == 3.0
    assert censored_quantile(scores, np.array([True, True, True, True]), even, 0.5) == 4.0
    random = np.random.default_rng(1)
    truth, limit = random.normal(size=20_000), random.normal(1.0, 1.0, size=20_000)
    got = censored_quantile(np.minimum(truth, limit), truth > limit, np.ones(20_000), 0.9)
    assert got == pytest.approx(1.2816, abs=0.06)


def test_offsets_never_fall_with_load_and_small_groups_borrow() -> None:
    assert rising(np.array([3.0, 1.0, 2.0, 5.0]), np.ones(4)).tolist() == [2.0, 2.0, 2.0, 5.0]
    random = np.random.default_rng(2)
    queue = np.repeat([0.0, 1.0, 5.0, 20.0], 200)
    errors = (random.normal(size=800) - 0.2 * queue)[:, None]
    gpu = np.zeros(800)
    gpu[790:] = 1.0
    calibration = calibrate(errors, np.zeros(800, dtype=bool), gpu, queue, np.ones(800), (0.5,), 2)
    assert (np.diff(calibration.offsets[0, :, 0]) >= 0).all()
    overall = calibration.offsets[2, 0, 0]
    assert (calibration.offsets[1, :, 0] == overall).all()
    assert calibration.offset(np.array([-1.0]), np.array([9.0]))[0, 0] == overall
    assert load_band(np.array([0.0, 0.4, 2.0, 8.0, 9.0, np.nan])).tolist() == [0, 0, 1, 2, 3, 3]


def test_split_is_by_time_with_a_gap(toy_samples: Samples) -> None:
    split = split_samples(toy_samples, SplitSettings())
    for run in (0, 1):
        parts = [part.decided_s[part.run == run] for part in (split.fit, split.calibrate, split.test)]
        assert parts[0].max() < parts[1].min() - 4.5
        assert parts[1].max() < parts[2].min() - 4.5


def test_split_of_many_runs_keeps_runs_whole(toy_samples: Samples) -> None:
    runs = np.arange(len(toy_samples)) // 800
    split = split_samples(replace(toy_samples, run=runs), SplitSettings())
    groups = [set(part.run.tolist()) for part in (split.fit, split.calibrate, split.test)]
    assert groups == [{0, 1, 2, 3, 4, 5}, {6, 7}, {8, 9}]


def test_too_few_rows_and_bad_settings_are_refused(toy_samples: Samples) -> None:
    with pytest.raises(ModelError, match="at least 50 needed"):
        split_samples(toy_samples.take(np.arange(100)), SplitSettings())
    for bad in (
        lambda: TrainingSettings(quantiles=(0.9,)),
        lambda: TrainingSettings(quantiles=(0.9, 0.5)),
        lambda: TrainingSettings(calibration_rows=3),
        lambda: BoostSettings(learning_rate=0.0),
        lambda: SplitSettings(fit_share=0.9, calibrate_share=0.2),
        lambda: SplitSettings(gap_s=-1),
    ):
        with pytest.raises(SettingError):
            bad()


def test_same_samples_same_bytes(toy_samples: Samples) -> None:
    settings = TrainingSettings(boost=BoostSettings(mean_trees=5, quantile_trees=5))
    small = toy_samples.take(np.arange(2000))
    first, second = (train(small, settings, "2026-01-01T00:00:00Z") for _ in range(2))
    assert first.texts == second.texts
    assert first.card.to_json() == second.card.to_json()


def test_f079_null_columns_train_and_load_in_a_fresh_process(
    toy_table: ToyTable, toy_kinds: Kinds, tmp_path: Path
) -> None:
    table = toy_table(1500, 5)
    table = with_column(table, "gpu_type", [None, *table.column("gpu_type").to_pylist()[1:]])
    for name in ("inflight_tokens", "waiting_prefill_s"):
        table = with_column(table, name, [None] * len(table))
    samples = samples_from_tables([table], toy_kinds)
    assert samples.dropped == {"unknown_hardware": 1}
    trained = train(samples, TrainingSettings(boost=BoostSettings(mean_trees=10, quantile_trees=5)), "t")
    store = ModelStore(tmp_path)
    version = publish(trained, store)
    loaded = store.load(version).predict(trained.test.features)
    np.testing.assert_array_equal(loaded.ttft_s, trained.predictor.predict(trained.test.features).ttft_s)


def test_f079_a_model_that_a_fresh_process_refuses_is_not_published(toy_model: Trained, tmp_path: Path) -> None:
    probe = replace(toy_model.card.probe, ttft_s=tuple((1.0, 2.0) for _ in toy_model.card.probe.ttft_s))
    store = ModelStore(tmp_path)
    with pytest.raises(ModelError, match="fresh process refused"):
        publish(replace(toy_model, card=replace(toy_model.card, probe=probe)), store)
    assert store.versions() == []
    assert list((tmp_path / "versions").iterdir()) == []


def test_promotion_needs_a_win_over_prior_and_serving_model(toy_model: Trained, tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    first = promotion_verdict(toy_model, store)
    assert first.promote
    assert first.to_dict()["losses"] == {"model": toy_model.report.loss, "prior": toy_model.prior_report.loss}
    store.promote(store.publish(toy_model.card, toy_model.forest, toy_model.texts))
    again = promotion_verdict(toy_model, store)
    assert not again.promote
    assert "serving model" in again.reasons[0]
    assert again.losses["serving"] == again.losses["model"]
    worse = replace(toy_model, report=replace(toy_model.report, loss=toy_model.prior_report.loss))
    assert any("prior" in reason for reason in promotion_verdict(worse, ModelStore(tmp_path / "empty")).reasons)
    failed = replace(toy_model, checks=replace(toy_model.checks, failed=("not_finite",)))
    assert not promotion_verdict(failed, ModelStore(tmp_path / "empty")).promote


def test_samples_are_recoded_for_another_model(toy_model: Trained, toy_samples: Samples) -> None:
    card = replace(toy_model.card, gpu_types=("aaa", "slow"))
    other = type(toy_model.predictor)(card, toy_model.forest)
    once = toy_samples.recoded(other.codes)
    features = once.features[:, INDEX["gpu_type"]]
    slow = toy_samples.features[:, INDEX["gpu_type"]] == 1
    assert set(features[slow]) == {1.0}
    assert set(features[~slow]) == {-1.0}
    assert other.codes.gpu_types == ("aaa", "slow")
    twice = once.recoded(toy_samples.codes).features[:, INDEX["gpu_type"]]
    assert set(twice[~slow]) == {-1.0}, "what was unknown stays unknown"


def test_levelled_offsets_cover_held_out_rows_and_keep_the_groups_apart() -> None:
    """Fitted rows are too good to be true: their offsets are too small, but tell how groups differ."""
    random = np.random.default_rng(5)
    n, quantiles = 20_000, (0.5, 0.9)
    gpu = random.integers(0, 2, n).astype(float)
    queue, weight, nothing = random.choice([0.0, 5.0], n), np.ones(n), np.zeros(n, dtype=bool)
    errors = np.repeat(random.normal(0.0, 0.1, n)[:, None], 2, axis=1) * (1.0 + gpu + (queue > 0))[:, None]
    fitted = calibrate(0.8 * errors, nothing, gpu, queue, weight, quantiles, 2)
    held = levelled(fitted, errors, nothing, gpu, queue, weight, quantiles)
    assert (errors <= held.offset(gpu, queue)).mean(axis=0) == pytest.approx(quantiles, abs=1e-3)
    assert (errors <= fitted.offset(gpu, queue))[:, 1].mean() < 0.88
    apart = held.offsets - fitted.offsets
    np.testing.assert_allclose(apart, np.broadcast_to(apart[0, 0], apart.shape))


def test_load_bands_count_the_same_where_offsets_must_not_fall() -> None:
    """Many idle rows with wide errors and few busy ones with small errors meet half-way."""
    wide, narrow = np.full(9000, 0.4), np.full(1000, 0.2)
    errors = np.concatenate([wide, narrow])[:, None]
    queue = np.repeat([0.0, 5.0], [9000, 1000])
    n = len(queue)
    found = calibrate(errors, np.zeros(n, dtype=bool), np.zeros(n), queue, np.ones(n), (0.5,), 1)
    # Bands without rows borrow 0.4; idle, light and busy share what they exceed busy by.
    assert found.offsets[0, :, 0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.4])
