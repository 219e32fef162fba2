"""The catalog: what ships, how it is looked up, how a broken file is refused."""

import dataclasses
import math
from datetime import date

import pytest

from data.catalog.calibration_inputs import GPUS as GPU_INPUTS
from data.catalog.dump import dump_catalog, write_catalog
from data.catalog.link import Shape, all_reduce_bytes, link_times
from data.catalog.load import SHIPPED_CATALOG, load_catalog, parse_catalog
from data.catalog.memory import StartAssumptions, kv_capacity_tokens, kv_tokens_at
from data.catalog.priced import priced_times
from data.catalog.types import ServiceTimes
from data.errors import InputError, SettingError

GPUS = ("A100", "H100", "H200", "B200", "L40S", "RTX-PRO-6000", "B60")
MODELS = ("llama-3.1-8b", "llama-3.3-70b", "qwen3-32b", "qwen3-30b-a3b", "glm-5-fp8")


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def test_the_shipped_catalog_covers_the_promised_gpus_and_models(catalog):
    assert tuple(gpu.name for gpu in catalog.gpus()) == GPUS
    assert catalog.models() == tuple(sorted(MODELS))
    assert load_catalog() is catalog
    for gpu in GPUS:
        assert any(facts.gpu_type == gpu for facts in catalog.replicas())


def test_every_entry_has_a_source_a_date_and_an_error(catalog):
    for facts in catalog.replicas():
        assert "aiconfigurator-core 0.12.0" in facts.source.name
        assert facts.source.retrieved > date(2026, 1, 1)
        assert 0 < facts.source.prefill_error <= facts.source.median_error < 0.15
        assert 0 < facts.source.decode_error <= facts.source.median_error
    assert all(gpu.source.name for gpu in catalog.gpus())


def test_entries_carry_what_recorded_engines_showed_and_no_others_do(catalog):
    """Host overhead and link of the inputs, and the source that says what they were measured on."""
    engines = {gpu.name: gpu.engine for gpu in GPU_INPUTS}
    assert [name for name, engine in engines.items() if engine] == ["RTX-PRO-6000"]
    for facts in catalog.replicas():
        engine = engines[facts.gpu_type]
        assert facts.times.host_overhead == (engine.host_overhead_s if engine else 0.0)
        assert ("recorded" in facts.source.name) == (engine is not None)
        if engine is None:
            assert priced_times(facts) is facts.times
        linked = engine is not None and facts.tensor_parallel > 1
        assert ("all-reduces" in facts.source.name) == linked
        assert ("not measured" in facts.source.name) == (linked and facts.tensor_parallel != engine.link_gpus)


def test_a_link_slows_every_token_by_its_all_reduces():
    """Qwen3-32B on two cards: 2 · 64 · 5120 · 2 bytes a token; a ring of eight sends 7/4 of it."""
    shape = Shape(layers=64, hidden=5120)
    assert all_reduce_bytes(shape, 2) == 1_310_720
    assert all_reduce_bytes(shape, 8) == pytest.approx(1.75 * 1_310_720)
    assert all_reduce_bytes(shape, 1) == 0.0
    times = ServiceTimes(p0=0.02, p1=1e-4, p2=1e-9, d0=0.02, d1=5e-5, d2=1e-7, host_overhead=0.001)
    linked = link_times(times, shape, 2, 10e9)
    assert linked.prefill_s(1000) - times.prefill_s(1000) == pytest.approx(0.131072)
    assert linked.decode_s(10, 5000) - times.decode_s(10, 5000) == pytest.approx(0.00131072)
    assert linked.host_overhead == times.host_overhead
    assert link_times(linked, shape, 2, -10e9).p1 == pytest.approx(times.p1)


def test_priced_times_lack_what_recorded_engines_added(catalog):
    facts = catalog.facts("qwen3-32b", "RTX-PRO-6000", 4)
    times, token_s = priced_times(facts), 1.5 * 1_310_720 / 18.6e9
    assert times.host_overhead == 0.0
    assert facts.times.p1 - times.p1 == pytest.approx(token_s)
    assert facts.times.d1 - times.d1 == pytest.approx(token_s)
    one = catalog.facts("qwen3-32b", "RTX-PRO-6000", 1)
    assert dataclasses.replace(priced_times(one), host_overhead=0.0025) == one.times


def test_every_entry_is_physically_sensible(catalog):
    for facts in catalog.replicas():
        times = facts.times
        assert min(times.p0, times.p1, times.p2, times.d0, times.d1, times.d2, times.d_sat) >= 0
        assert times.prefill_s(8192) > times.prefill_s(512) > 0
        assert times.prefill_s(512, 8192) >= times.prefill_s(512)
        assert times.decode_s(64, 64_000) > times.decode_s(1, 1000) > 0
        assert facts.kv_capacity_tokens >= 8192
        assert facts.load_s > facts.warm_load_s > 0
        gpu = catalog.gpu(facts.gpu_type)
        assert facts.weights_gb < facts.tensor_parallel * gpu.memory_gb * 0.9
        # One decode step reads every weight in use at least once; only a mixture of experts reads a part.
        if times.d_sat == 0:
            least = facts.weights_gb * 1e9 / (gpu.memory_bandwidth * facts.tensor_parallel)
            assert times.decode_s(1, 1) > 0.9 * least


def test_a_faster_gpu_is_faster(catalog):
    def decode(gpu):
        return catalog.facts("llama-3.1-8b", gpu, 1).times.decode_s(16, 32_000)

    assert decode("B200") < decode("H200") < decode("H100") < decode("A100") < decode("L40S") < decode("B60")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("llama-3.1-8", "H100", 1), "unknown catalog model .got 'llama-3.1-8'.; expected 'llama-3.1-8b'?"),
        (("llama-3.1-8b", "H10", 1), "unknown GPU type .got 'H10'.; expected 'H100'?"),
        (
            ("llama-3.3-70b", "H100", 1),
            "no llama-3.3-70b on 1 x H100; expected one of A100 x 2/4/8, .*H100 x 2/4/8",
        ),
        (("llama-3.1-8b", "H100", 3), "no llama-3.1-8b on 3 x H100"),
    ],
)
def test_an_unknown_combination_lists_what_exists(catalog, arguments, message):
    with pytest.raises(InputError, match=message):
        catalog.facts(*arguments)


def test_step_times_follow_their_formulas():
    times = ServiceTimes(p0=0.01, p1=1e-5, p2=1e-9, d0=0.005, d1=1e-4, d2=1e-7, host_overhead=0.001)
    assert times.prefill_s(1000, 500) == pytest.approx(0.01 + 0.01 + 1e-9 * 1000 * 1000)
    assert times.decode_s(10, 5000) == pytest.approx(0.005 + 0.001 + 0.0005)
    assert times.decode_fixed_s(10) == pytest.approx(0.006)
    assert times.mixed_s(1000, 500, 10, 5000) == pytest.approx(0.01 + 0.011 + 0.0015 + 0.001)


def test_the_saturating_term_levels_off_and_is_paid_once_in_a_mixed_step():
    times = ServiceTimes(p0=0.02, p1=1e-5, p2=0, d0=0.005, d1=0, d2=0, d_sat=0.015, sat_batch=16)
    assert times.decode_s(16, 0) == pytest.approx(0.005 + 0.015 * (1 - math.exp(-1)))
    assert times.decode_s(1000, 0) == pytest.approx(0.02)
    # The prefill part has read the expert weights already: the decode part adds nothing.
    assert times.mixed_s(100, 0, 1000, 0) == pytest.approx(times.prefill_s(100))


def test_kv_capacity_arithmetic():
    # (80 GB · 0.9 − 16 − 3) / 131072 B; two GPUs halve the weights and the bytes a token takes on each.
    assert kv_capacity_tokens(80, 16, 131072, 1, 1, 3) == int(53e9 // 131072)
    assert kv_capacity_tokens(80, 16, 131072, 2, 2, 3) == int(61e9 // 65536)
    assert kv_capacity_tokens(80, 200, 131072, 2, 2, 3) < 0


def test_kv_tokens_at_another_memory_share(catalog):
    facts, gpu = catalog.facts("llama-3.1-8b", "H100", 1), catalog.gpu("H100")
    assert kv_tokens_at(facts, gpu, 0.90) == facts.kv_capacity_tokens
    at_80 = kv_capacity_tokens(gpu.memory_gb, facts.weights_gb, 131072, 1, 1, 3.0, memory_share=0.80)
    assert kv_tokens_at(facts, gpu, 0.80) == pytest.approx(at_80, rel=1e-4)
    assert kv_tokens_at(facts, gpu, 0.2) < 0


def test_start_assumptions():
    assumptions = StartAssumptions(disk_gb_per_s=2, host_gb_per_s=10, engine_start_s=30, warm_start_s=3)
    assert assumptions.load_s(100) == 80
    assert assumptions.warm_load_s(100, 2) == 8
    with pytest.raises(SettingError, match=r"disk_gb_per_s: out of range .got 0.; expected above 0"):
        StartAssumptions(disk_gb_per_s=0)
    with pytest.raises(SettingError, match=r"warm_start_s"):
        StartAssumptions(warm_start_s=-1)


def test_a_catalog_survives_the_round_trip(catalog, tmp_path):
    path = tmp_path / "catalog.yaml"
    write_catalog(path, catalog.gpus(), catalog.replicas(), StartAssumptions())
    again = load_catalog(path)
    assert again.gpus() == catalog.gpus()
    assert again.replicas() == catalog.replicas()
    assert path.read_text() == SHIPPED_CATALOG.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["catalog.yaml"]


SMALL = """\
sources:
  - {id: s1, name: "measured", retrieved: "2026-01-31"}
gpus:
  - {name: G, memory_gb: 80, memory_bandwidth: 2e12, power_kw: 0.5, price_per_hour: 1, source: s1}
replicas:
  - {model: m, gpu: G, tensor_parallel: 1, kv_capacity_tokens: 9000, weights_gb: 16, load_s: 30, warm_load_s: 3,
     p0: 0.01, p1: 1e-5, p2: 1e-9, d0: 0.01, d1: 1e-4, d2: 1e-7, source: s1}
"""


def test_a_catalog_of_the_users_own():
    catalog = parse_catalog(SMALL, "mine.yaml")
    facts = catalog.facts("m", "G", 1)
    assert facts.times.d1 == 1e-4
    assert facts.source.median_error is None
    assert "replicas" in dump_catalog(catalog.gpus(), catalog.replicas(), StartAssumptions())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: G, mem", "nam: G, mem", "mine.yaml:4: gpus.0..nam: unknown key"),
        ("gpu: G", "gpu: H", "mine.yaml:6: replicas.0..gpu: unknown GPU type"),
        ("1, source: s1}\nrep", "1, source: s2}\nrep", "mine.yaml:4: gpus.0..source: unknown source"),
        ("2026-01-31", "2026-02-31", "mine.yaml:2: sources.0..retrieved: no such day"),
        ("d0: 0.01", "d0: -1", "replicas.0..d0: out of range"),
        ("replicas:", "replicas: []\nreplicas2:", "unknown key; expected 'replicas'"),
        ("sources:", "- sources:", "mine.yaml:"),
    ],
)
def test_a_broken_catalog_is_refused_with_its_line(old, new, message):
    assert old in SMALL
    with pytest.raises(InputError, match=message):
        parse_catalog(SMALL.replace(old, new), "mine.yaml")


def test_the_same_combination_twice_is_refused():
    row = SMALL[SMALL.index("  - {model") :]
    with pytest.raises(InputError, match=r"duplicate entry .got 'm on 1 x G'"):
        parse_catalog(SMALL + row, "mine.yaml")


def test_a_catalog_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the catalog"):
        load_catalog(tmp_path / "none.yaml")
