"""The learned predictor: order, coverage, guards, checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from data.errors import ModelError
from models.checks import release_checks
from models.evaluate import evaluate
from models.features import INDEX, LEARNED
from models.physics import prior_times
from models.predictor import ResidualPredictor
from models.training import Trained


def test_model_beats_the_prior_on_the_newest_window(toy_model: Trained) -> None:
    assert toy_model.report.loss < 0.6 * toy_model.prior_report.loss
    assert toy_model.report.overall("ttft_s").median_error < 0.12
    assert toy_model.report.overall("tpot_s").median_error < 0.08


def test_calibrated_coverage_on_later_rows(toy_model: Trained) -> None:
    for target in ("ttft_s", "tpot_s"):
        coverage = toy_model.report.overall(target).coverage
        assert coverage["0.5"] == pytest.approx(0.5, abs=0.06)
        assert coverage["0.9"] == pytest.approx(0.9, abs=0.05)


def test_f080_served_quantiles_never_cross(toy_model: Trained) -> None:
    raw = toy_model.predictor.raw_quantiles(toy_model.test.features)
    prediction = toy_model.predictor.predict(toy_model.test.features)
    assert (np.diff(prediction.ttft_s, axis=1) >= 0).all()
    assert (np.diff(prediction.tpot_s, axis=1) >= 0).all()
    np.testing.assert_array_equal(np.sort(raw.ttft_s, axis=1), prediction.ttft_s)
    assert 0.0 <= toy_model.card.checks["crossing_rate"] <= 0.05


def test_f080_crossing_is_sorted_and_counted(toy_model: Trained) -> None:
    """A model whose upper quantile was pushed below the median still answers in order."""
    base = {target: (levels[0] + 1.0, levels[1] - 1.0) for target, levels in toy_model.card.base.items()}
    crossed = ResidualPredictor(replace(toy_model.card, base=base), toy_model.forest)
    report = release_checks(crossed, toy_model.test.features)
    prediction = crossed.predict(toy_model.test.features)
    assert report.values["crossing_rate"] > 0.9
    assert (np.diff(prediction.ttft_s, axis=1) >= 0).all()


def test_release_checks_pass_on_a_sound_model(toy_model: Trained) -> None:
    assert toy_model.checks.passed
    assert {"falls_with_uncached_tokens", "falls_with_queue_depth", "unseen_category"} <= set(
        toy_model.checks.values
    )


def test_release_checks_catch_a_model_that_falls_with_load(toy_model: Trained) -> None:
    """F080: offsets that fall from one load band to the next break the monotony, and are noticed."""
    offsets = {target: np.array(nested) for target, nested in toy_model.card.offsets.items()}
    for values in offsets.values():
        values[:, 2:] -= 2.0
    card = replace(toy_model.card, offsets={target: values.tolist() for target, values in offsets.items()})
    report = release_checks(ResidualPredictor(card, toy_model.forest), toy_model.test.features)
    assert "falls_with_queue_depth" in report.failed


def test_f082_long_prompts_follow_the_prior_beyond_the_trained_range(toy_model: Trained) -> None:
    rows = toy_model.test.features[:50].copy()
    high = toy_model.card.high[LEARNED.index("uncached_tokens")]
    answers = []
    for tokens in (high, 2 * high, 8 * high):
        rows[:, INDEX["uncached_tokens"]] = rows[:, INDEX["input_tokens"]] = tokens
        rows[:, INDEX["hit_tokens"]] = 0.0
        prediction = toy_model.predictor.predict(rows)
        answers.append((prediction, prior_times(rows, toy_model.predictor.prior.settings).ttft_s))
    (edge, edge_prior), (_, _), (far, far_prior) = answers
    assert edge.extrapolated is not None
    assert far.extrapolated is not None
    assert far.extrapolated.all()
    # The median grows as the prior does, and the upper quantile widens.
    np.testing.assert_allclose(far.ttft_s[:, 0] / edge.ttft_s[:, 0], far_prior / edge_prior, rtol=1e-6)
    inside = ~edge.extrapolated
    assert inside.any()
    assert ((far.ttft_s[:, 1] / far.ttft_s[:, 0]) > (edge.ttft_s[:, 1] / edge.ttft_s[:, 0]))[inside].all()


@pytest.mark.parametrize("name", ["gpu_type", "model", "role"])
def test_f071_unknown_gpu_model_or_role_gets_the_prior(toy_model: Trained, name: str) -> None:
    rows = toy_model.test.features[:20].copy()
    rows[::2, INDEX[name]] = -1.0 if name != "role" else 2.0
    prediction = toy_model.predictor.predict(rows)
    prior = toy_model.predictor.prior.predict(rows)
    np.testing.assert_allclose(prediction.ttft_s[::2], prior.ttft_s[::2], rtol=1e-9)
    np.testing.assert_allclose(prediction.tpot_s[::2], prior.tpot_s[::2], rtol=1e-9)
    assert prediction.extrapolated is not None
    assert prediction.extrapolated[::2].all()
    assert not np.allclose(prediction.ttft_s[1::2], prior.ttft_s[1::2])


def test_missing_and_absurd_values_give_finite_times(toy_model: Trained) -> None:
    rows = np.repeat(toy_model.test.features[:1], 4, axis=0)
    rows[0], rows[1], rows[2], rows[3] = np.nan, np.inf, -1.0, 1e30
    prediction = toy_model.predictor.predict(rows)
    for times in (prediction.ttft_s, prediction.tpot_s):
        assert np.isfinite(times).all()
        assert (times > 0).all()
    assert prediction.extrapolated is not None
    assert prediction.extrapolated.all()


def test_one_row_equals_the_same_row_in_a_batch(toy_model: Trained) -> None:
    rows = toy_model.test.features[:33]
    batch = toy_model.predictor.predict(rows)
    for position in (0, 7, 32):
        one = toy_model.predictor.predict(rows[position : position + 1])
        np.testing.assert_array_equal(one.ttft_s[0], batch.ttft_s[position])


def test_card_and_forest_must_belong_together(toy_model: Trained) -> None:
    with pytest.raises(ModelError, match="outputs"):
        ResidualPredictor(replace(toy_model.card, quantiles=(0.5, 0.9, 0.99)), toy_model.forest)
    with pytest.raises(ModelError, match="schema"):
        ResidualPredictor(replace(toy_model.card, schema_hash="0" * 64), toy_model.forest)
    with pytest.raises(ModelError, match="calibration"):
        ResidualPredictor(replace(toy_model.card, gpu_types=("fast",)), toy_model.forest)


def test_groups_of_the_report_add_up(toy_model: Trained) -> None:
    report = evaluate(toy_model.predictor, toy_model.test)
    rows = {group.group: group.rows for group in report.groups if group.target == "ttft_s"}
    for kind in ("gpu_type", "load", "prompt"):
        assert sum(count for name, count in rows.items() if name.startswith(kind)) == rows["all"]
