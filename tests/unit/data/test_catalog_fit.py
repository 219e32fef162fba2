"""Fits of step times, and the calibration around them, on an engine whose times are known."""

import importlib.util
import math
import sys
import types
from datetime import date

import numpy as np
import pytest

from data.catalog import calibrate
from data.catalog.calibrate import CalibrationError, fit_engine, main
from data.catalog.calibration_inputs import EngineInput, GpuInput, ModelInput
from data.catalog.dump import write_catalog
from data.catalog.fit import fit_decode, fit_prefill, fit_saturating_decode, relative_nnls
from data.catalog.link import Shape
from data.catalog.load import load_catalog
from data.catalog.memory import StartAssumptions
from data.catalog.types import ServiceTimes
from data.errors import InputError

INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None
DENSE = ServiceTimes(p0=0.005, p1=2e-5, p2=1e-9, d0=0.006, d1=1e-5, d2=4e-8)
EXPERTS = ServiceTimes(p0=0.02, p1=1e-5, p2=1e-9, d0=0.004, d1=1e-5, d2=7e-8, d_sat=0.02, sat_batch=16)


class KnownEngine:
    """Answers with the formulas themselves, in milliseconds."""

    def __init__(self, times):
        self.times = times
        self.largest_kv = 0

    def predict_prefill_latency(self, bs, isl, prefix=0):
        return 1e3 * self.times.prefill_s(isl - prefix, prefix)

    def predict_decode_latency(self, bs, isl, osl=2):
        self.largest_kv = max(self.largest_kv, bs * isl)
        return 1e3 * self.times.decode_s(bs, bs * isl)


@pytest.mark.parametrize(("times", "experts"), [(DENSE, False), (EXPERTS, True)])
def test_the_calibration_recovers_known_times(times, experts):
    engine = KnownEngine(times)
    fit = fit_engine(engine, 400_000, experts)
    for name in ("p0", "p1", "p2", "d0", "d1", "d2", "d_sat"):
        assert getattr(fit.times, name) == pytest.approx(getattr(times, name), rel=1e-6, abs=1e-12), name
    assert fit.times.sat_batch == times.sat_batch
    assert max(fit.prefill.median_error, fit.decode.median_error) < 1e-9
    assert engine.largest_kv <= 400_000, "only what fits in memory is asked for"


def test_the_saturating_term_is_needed_for_experts():
    """Without it the best linear fit of such times is off by more than a tenth."""
    batch = np.repeat([1.0, 4, 16, 64, 256], 4)
    kv = batch * np.tile([128.0, 512, 1024, 2048], 5)
    seconds = np.array([EXPERTS.decode_s(b, k) for b, k in zip(batch, kv, strict=True)])
    assert fit_decode(batch, kv, seconds).median_error > 0.10
    saturating, scale = fit_saturating_decode(batch, kv, seconds)
    assert saturating.median_error < 1e-9
    assert scale == 16


def test_coefficients_are_never_negative():
    tokens = np.array([64.0, 512, 4096, 8192])
    falling = np.array([0.4, 0.3, 0.2, 0.1])
    fit = fit_prefill(tokens, np.zeros(4), falling)
    assert min(fit.coefficients) >= 0


def test_relative_error_is_what_is_minimised():
    """One constant for a small and a large time: the least squared *relative* error, not the mean."""
    fit = relative_nnls([np.ones(2)], np.array([0.001, 1.0]))
    assert fit.coefficients[0] == pytest.approx((1 / 0.001 + 1) / (1 / 0.001**2 + 1))


def test_an_engine_without_data_is_a_calibration_error():
    class Broken:
        def predict_prefill_latency(self, bs, isl, prefix=0):
            raise RuntimeError("no table for this\nand a long trace")

        predict_decode_latency = predict_prefill_latency

    with pytest.raises(CalibrationError, match=r"^no table for this$"):
        fit_engine(Broken(), 100_000, False)


@pytest.mark.skipif(INSTALLED, reason="the extra is installed")
def test_f133_without_the_extra_the_command_says_how_to_get_it(tmp_path, capsys):
    with pytest.raises(CalibrationError, match=r"install the extra: pip install '.\[calibrate\]'"):
        calibrate.calibrate()
    assert main(["--out", str(tmp_path / "c.yaml")]) == 1
    assert "aiconfigurator-core is not installed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


SHEET = "gpu: {mem_capacity: 85899345920, mem_bw: 3350000000000, power: 700}\n"


@pytest.fixture
def pricing_package(tmp_path, monkeypatch):
    """A stand-in for the optional package that prices steps by known formulas and has no data at degree 4."""

    class EngineHandle:
        @classmethod
        def compile(cls, checkpoint, system, backend, *, tp_size, moe_tp_size, moe_ep_size):
            assert (system, backend, moe_tp_size, moe_ep_size) == ("sys", "vllm", tp_size, 1)
            if tp_size == 4:
                raise RuntimeError("no table\nlong trace")
            return KnownEngine(EXPERTS if "moe" in checkpoint else DENSE)

    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "sys.yaml").write_text(SHEET)
    package = types.ModuleType("aiconfigurator_core")
    package.__file__ = str(tmp_path / "__init__.py")
    engine = types.ModuleType("aiconfigurator_core.sdk.engine")
    engine.EngineHandle = EngineHandle
    for name, module in (("", package), (".sdk", types.ModuleType("sdk")), (".sdk.engine", engine)):
        monkeypatch.setitem(sys.modules, "aiconfigurator_core" + name, module)
    monkeypatch.setattr(calibrate.importlib.metadata, "version", lambda name: "9.9.9")


def test_a_calibration_from_package_to_catalog_file(pricing_package, tmp_path):
    gpus = [GpuInput("G", "sys", 2.0)]
    models = [
        ModelInput("dense", "org/dense", 8e9, 2, 131072, 8, Shape(32, 4096)),
        ModelInput("moe", "org/moe", 60e9, 2, 98304, 4, Shape(48, 2048), experts=True, note="a note"),
    ]
    result = calibrate.calibrate(gpus, models, today=date(2026, 1, 31))
    (gpu,) = result.gpus
    assert (gpu.memory_gb, gpu.memory_bandwidth, gpu.power_kw, gpu.price_per_hour) == (85.9, 3.35e12, 0.7, 2.0)
    found = {(r.catalog_model, r.tensor_parallel): r for r in result.replicas}
    assert set(found) == {("dense", 1), ("dense", 2), ("dense", 8), ("moe", 2), ("moe", 8)}
    assert set(result.skipped) == {
        "moe on 1 x G: weights leave no room",
        "dense on 4 x G: no table",
        "moe on 4 x G: no table",
    }
    assert found["dense", 1].source.name == "aiconfigurator-core 9.9.9, vllm tables"
    assert found["moe", 2].source.name.endswith("; a note")
    assert found["moe", 2].times.d_sat == pytest.approx(EXPERTS.d_sat)
    # 60e9 parameters of 2 bytes over 2 GPUs; 4 KV heads shard over at most 4 GPUs.
    assert found["moe", 2].kv_capacity_tokens == int((85.9 * 0.9 - 60 - 3) * 1e9 // (98304 / 2))
    assert found["moe", 8].kv_capacity_tokens == int((85.9 * 0.9 - 15 - 3) * 1e9 // (98304 / 4))
    path = tmp_path / "catalog.yaml"
    write_catalog(path, result.gpus, result.replicas, StartAssumptions())
    again = load_catalog(path).facts("moe", "G", 2)
    assert again.times.d2 == pytest.approx(EXPERTS.d2, rel=1e-5)
    assert again.source.retrieved == date(2026, 1, 31)
    assert again.source.name.endswith("; a note")


def test_what_recorded_engines_added_is_part_of_the_calibration(pricing_package):
    """Host overhead at every degree, the link's all-reduces beyond one GPU; the sources say so."""
    engine = EngineInput(0.002, "host: a run", 10e9, "link: a run", 2)
    model = ModelInput("dense", "org/dense", 8e9, 2, 131072, 8, Shape(32, 4096))
    result = calibrate.calibrate([GpuInput("G", "sys", 2.0, engine)], [model], today=date(2026, 1, 31))
    one, two, eight = result.replicas
    token_s = 2 * 32 * 4096 * 2 / 10e9
    for facts, share in ((one, 0.0), (two, 1.0), (eight, 1.75)):
        assert facts.times.host_overhead == 0.002
        assert facts.times.p1 == pytest.approx(DENSE.p1 + share * token_s)
        assert facts.times.d1 == pytest.approx(DENSE.d1 + share * token_s)
    assert one.source.name == "aiconfigurator-core 9.9.9, vllm tables; host: a run"
    assert two.source.name.endswith("host: a run; link: a run")
    assert eight.source.name.endswith("link: a run, not measured on 8: by the bytes of a ring")


def test_a_catalog_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match=r"gone/c.yaml: cannot be written: No such file"):
        write_catalog(tmp_path / "gone" / "c.yaml", (), (), StartAssumptions())


def test_importing_the_module_does_not_import_the_package():
    assert INSTALLED or "aiconfigurator_core" not in sys.modules


@pytest.mark.skipif(not INSTALLED, reason="needs the extra calibrate")
def test_the_shipped_catalog_is_what_the_package_gives():
    from data.catalog.calibration_inputs import GPUS, MODELS

    result = calibrate.calibrate(
        [g for g in GPUS if g.name == "H100"], [m for m in MODELS if m.name == "llama-3.1-8b"]
    )
    for facts in result.replicas:
        shipped = load_catalog().facts(facts.catalog_model, facts.gpu_type, facts.tensor_parallel)
        assert math.isclose(facts.times.d0, shipped.times.d0, rel_tol=1e-4)
        assert math.isclose(facts.times.p1, shipped.times.p1, rel_tol=1e-4)


@pytest.mark.skipif(not INSTALLED, reason="needs the extra calibrate")
@pytest.mark.parametrize(
    ("model", "gpu", "limit"),
    [("qwen3-30b-a3b", "H100", 0.05), ("qwen3-30b-a3b", "A100", 0.08), ("llama-3.1-8b", "H100", 0.15)],
)
def test_mixed_steps_agree_with_the_package(model, gpu, limit):
    """The larger fixed part is paid once: adding the saturating part on top is off by more than a tenth."""
    from data.catalog.calibration_inputs import GPUS, MODELS

    entry = next(m for m in MODELS if m.name == model)
    engine = calibrate.compile_engine(entry, next(g for g in GPUS if g.name == gpu), 1)
    times = load_catalog().facts(model, gpu, 1).times
    errors, added = [], []
    for prompt, chunk in ((1024, 256), (1024, 1024), (4096, 256), (4096, 1024), (4096, 4096)):
        for batch in (4, 16, 64):
            priced = engine.mixed_step_latency(chunk, batch, prompt, 2) / 1e3
            # The package prices a chunk at the mean attention of its whole prompt.
            ours = times.mixed_s(chunk, (prompt - chunk) / 2, batch, batch * prompt)
            errors.append(abs(ours / priced - 1))
            added.append(abs((ours + times.saturating_s(batch)) / priced - 1))
    assert np.median(errors) < limit
    assert not entry.experts or np.median(added) > 0.10
