"""Step times fitted on training rows: they are found again, and held-out rows play no part."""

from dataclasses import replace

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.errors import LogError, ModelError
from models.features import INDEX, EndpointKind
from models.physics import PriorSettings, prior_times
from models.public_logs.log import NO_TIMES, Columns, PublicLog, merge_logs, public_log
from models.public_logs.prior_fit import fit_prior, with_prior
from models.public_logs.prior_refine import fitted_prior
from models.public_logs.silicon_prior import silicon_prior
from models.public_logs.training import fit_rows, training_samples
from models.signals import Signals
from models.splits import SplitSettings

TRUE = ServiceTimes(p0=0.02, p1=5e-5, p2=2e-9, d0=0.01, d1=2e-4, d2=3e-8)
SETTINGS = PriorSettings()


def toy_log(rows=600, seed=0, source="toy", gpu="X", model="m@1", times=NO_TIMES, runs=2) -> PublicLog:
    """Rows whose times are the prior's own with ``TRUE``, up to 1 % of noise."""
    random = np.random.default_rng(seed)
    zero = np.zeros(rows)
    queue = np.maximum(random.poisson(2.0, rows) - 1.0, 0.0)
    tokens, running = random.integers(50, 4000, rows).astype(float), random.integers(0, 60, rows).astype(float)
    signals = Signals(
        queue, queue * 800.0, np.full(rows, np.nan), zero, running, running * 900.0, running * 900.0 / 5e5,
        running * 900.0, zero,
    )  # fmt: skip
    columns = Columns(
        np.zeros(rows, np.int64), np.arange(rows) * runs // rows, np.arange(rows, dtype=float), tokens, zero,
        zero + 512.0, zero + 1.0, zero + np.nan, zero + 1.0, zero + 100.0, signals, {"own": queue},
    )  # fmt: skip
    names = [f"run{number}" for number in range(runs)]
    exact = public_log(source, columns, [EndpointKind(gpu, 1.0, model, 4096.0, 5e5, TRUE)], names, {})
    features = exact.samples.features
    features[:, INDEX["waiting_prefill_s"]] = TRUE.p1 * features[:, INDEX["waiting_prefill_tokens"]]
    truth = prior_times(features, SETTINGS)
    noise = np.exp(random.normal(0, 0.01, (2, rows)))
    features = features.copy()
    features[:, INDEX["p0"] : INDEX["d2"] + 1] = (times.p0, times.p1, times.p2, times.d0, times.d1, times.d2)
    samples = replace(
        exact.samples, features=features, ttft_s=truth.ttft_s * noise[0], tpot_s=truth.tpot_s * noise[1]
    )
    return replace(exact, samples=samples)


def median_error(samples, rows):
    times = prior_times(samples.features, SETTINGS)
    ttft = np.median(np.abs(times.ttft_s / samples.ttft_s - 1)[rows])
    return max(ttft, np.median(np.abs(times.tpot_s / samples.tpot_s - 1)[rows]))


def test_least_squares_alone_comes_near_and_the_refined_fit_nearer():
    samples = toy_log().samples
    train = samples.run == 0
    rough = with_prior(samples, fit_prior(samples.take(train)))
    fine = fitted_prior(samples, train, SETTINGS)
    assert median_error(rough, ~train) < 0.35
    assert median_error(fine, ~train) < 0.03
    assert not prior_times(fine.features, SETTINGS).suspect.any()


def test_held_out_times_do_not_change_the_fit():
    samples = toy_log().samples
    train = samples.run == 0
    other = replace(
        samples, ttft_s=np.where(train, samples.ttft_s, 99.0), tpot_s=np.where(train, samples.tpot_s, 9.0)
    )
    assert np.array_equal(
        fitted_prior(samples, train, SETTINGS).features,
        fitted_prior(other, train, SETTINGS).features,
        equal_nan=True,
    )


def test_step_times_of_the_catalog_are_kept():
    samples = toy_log(times=TRUE).samples
    assert fitted_prior(samples, samples.run == 0, SETTINGS) is samples


def test_a_kind_without_training_rows_borrows():
    samples = merge_logs([toy_log(), toy_log(rows=200, seed=1, source="new", model="other@1")])
    train = samples.features[:, INDEX["model"]] == 0
    fitted = fitted_prior(samples, train, SETTINGS)
    assert np.isfinite(fitted.features[:, INDEX["p0"] : INDEX["sat_batch"] + 1]).all()
    assert median_error(fitted, ~train) < 0.35


def test_without_a_tpot_the_decode_step_is_the_fixed_prefill_part():
    samples = toy_log().samples
    blind = replace(samples, tpot_s=np.full(len(samples), np.nan))
    times = fit_prior(blind)[()]
    assert times.d0 == times.p0 > 0
    with pytest.raises(ModelError, match="no TTFT"):
        fit_prior(replace(samples, ttft_s=np.full(len(samples), np.nan)))


def test_merged_logs_share_codes_and_keep_their_runs_apart():
    first, second = toy_log(rows=10, gpu="Z"), toy_log(rows=6, gpu="A", source="two", model="k@1")
    second = replace(second, samples=replace(second.samples, dropped={"no_time": 3}))
    merged = merge_logs([first, second])
    assert merged.codes.gpu_types == ("A", "Z")
    assert merged.features[:, INDEX["gpu_type"]].tolist() == [1.0] * 10 + [0.0] * 6
    assert sorted(set(merged.run.tolist())) == [0, 1, 2, 3]
    assert merged.dropped == {"two:no_time": 3}
    with pytest.raises(ModelError):
        merge_logs([])


def test_training_samples_fit_the_prior_on_the_trees_rows_alone():
    log = toy_log()
    rows = fit_rows(log.samples, SplitSettings())
    assert 0.4 < rows.mean() < 0.65
    samples = training_samples([log], SETTINGS, SplitSettings())
    rows = fit_rows(samples, SplitSettings())
    np.testing.assert_array_equal(samples.features, fitted_prior(log.samples, rows, SETTINGS).features)
    assert sorted(set(samples.run.tolist())) == [0, 1], "runs change their order, not their rows"
    assert samples.gaps.tolist() == log.samples.gaps.tolist()
    blind = replace(log, samples=replace(log.samples, tpot_s=np.full(len(log.samples), np.nan)))
    with pytest.raises(ModelError, match="no TPOT"):
        training_samples([blind], SETTINGS, SplitSettings())


def test_runs_of_several_sources_are_mixed_before_they_are_split():
    logs = [toy_log(rows=1200, runs=8, model="a@1"), toy_log(rows=1200, runs=8, source="two", model="b@1")]
    samples = training_samples(logs, SETTINGS, SplitSettings())
    last = samples.features[samples.run >= 10, INDEX["model"]]
    assert 0 < last.mean() < 1


def silicon_log(model="llama-3.1-70b@fp8", gpu="h100_sxm"):
    log = toy_log(rows=200, gpu=gpu, model=model, source="silicon")
    return replace(log, extra={"output_tokens": np.full(200, 256.0)})


def test_the_roofline_prior_is_fitted_on_training_rows_and_positive():
    log = silicon_log()
    train = log.samples.run == 0
    samples, extra = silicon_prior(log, train)
    moved = replace(log, samples=replace(log.samples, tpot_s=np.where(train, log.samples.tpot_s, 7.0)))
    np.testing.assert_array_equal(silicon_prior(moved, train)[0].features, samples.features)
    assert (samples.features[:, INDEX["p0"] : INDEX["d2"] + 1] >= 0).all()
    times = prior_times(samples.features, SETTINGS)
    assert np.median(np.abs(times.tpot_s / samples.tpot_s - 1)[~train]) < 0.3
    assert extra["parameters"].tolist() == [70.6] * 200


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"model": "unheard-of@fp8"}, "model without"), ({"gpu": "abacus"}, "system without"),
     ({"model": "glm-5@fp1"}, "precision without")],
)  # fmt: skip
def test_silicon_without_facts_is_named(changes, match):
    with pytest.raises(LogError, match=match):
        silicon_prior(silicon_log(**changes), np.ones(200, dtype=bool))
