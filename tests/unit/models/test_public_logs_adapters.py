"""Every adapter on small invented files of its format: units, clocks, bad rows."""

import gzip
import json

import numpy as np
import pytest

from data.errors import LogError, SettingError
from models.features import INDEX
from models.public_logs.registry import SOURCES, load_public_log


def column(log, name):
    return log.samples.features[:, INDEX[name]]


def write_csv(path, rows, end="\n"):
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    path.write_bytes(gzip.compress(end.join(lines).encode()) if path.suffix == ".gz" else end.join(lines).encode())


def burst_record(end, whole, first, tokens):
    return {
        "record_time": end, "total_chunk_time": whole, "first_chunk_time": first, "in_len": tokens, "out_len": 900,
    }  # fmt: skip


def test_burstgpt_starts_before_the_record_and_has_no_tpot(tmp_path):
    for scale, shift in ((2000, 0.0), (100, 500.0)):
        records = {
            "0": burst_record(110.0 + shift, 10.0, 4.0, 300),
            "1": burst_record(112.0 + shift, 10.0, 1.0, 100),
            "2": burst_record(112.0 + shift, 1.0, 2.0, 100),
            "3": burst_record(112.0 + shift, None, 2.0, 100),
            "4": burst_record(112.0 + shift, 3.0, 2.0, 0),
        }
        (tmp_path / f"detail_log_scale{scale}.json").write_text(json.dumps(records))
        samples = [
            {"timestamp": 101.5 + shift, "num_running": 7, "num_pending": 3, "gpu_kvcache_usage": 25.0},
            {"timestamp": "oops", "num_running": 7, "num_pending": 3, "gpu_kvcache_usage": 25.0},
        ]
        write_csv(tmp_path / f"vllm_log_scale{scale}.csv.gz", samples)
    log = load_public_log("burstgpt", tmp_path)
    assert log.runs == ("scale100", "scale2000")
    assert log.samples.decided_s.tolist() == [600.0, 602.0, 100.0, 102.0]
    assert log.samples.ttft_s.tolist() == [4.0, 1.0] * 2
    assert np.isnan(log.samples.tpot_s).all()
    assert log.samples.dropped == {
        "no_time": 2, "bad_number": 2, "missing_prompt_length": 2, "bad_series_row": 2,
    }  # fmt: skip
    assert column(log, "queue_depth").tolist() == [0.0, 1.0] * 2
    assert column(log, "waiting_prefill_tokens").tolist() == [0.0, 300.0] * 2
    assert column(log, "kv_use").tolist() == [0.0, 0.25] * 2, "the engine reports percent"
    np.testing.assert_allclose(column(log, "metrics_age_s"), [0.0, 0.5] * 2)
    assert log.extra["engine_waiting"].tolist() == [0.0, 3.0] * 2


def serving_run(folder, records, meta=None):
    folder.mkdir(parents=True)
    (folder / "requests.jsonl").write_text("\n".join(json.dumps(one) for one in records))
    engine = {"tensor_parallel_size": 2, "max_num_batched_tokens": 2048}
    (folder / "meta.json").write_text(json.dumps({"engine_kwargs": engine} | (meta or {})))
    rows = [{"t": 1.0, "running": 5, "waiting": 2, "kv_cache_pct": 13.2}]
    write_csv(folder / "timeseries.csv", rows, end="\r\n")


def serving_record(queued, first, last, outputs=11, inputs=100):
    return {
        "input_toks": inputs, "output_toks": outputs, "arrival_time": 1.7e9, "queued_ts": queued,
        "first_token_ts": first, "last_token_ts": last,
    }  # fmt: skip


def test_llmservingsim_takes_times_from_the_engine_clock(tmp_path):
    good = [serving_record(50.0, 52.0, 53.0), serving_record(51.5, 53.0, 55.0, outputs=1)]
    bad = [serving_record(50.0, 49.0, 53.0), serving_record(50.0, 51.0, 52.0, inputs=0), {"input_toks": "?"}]
    serving_run(tmp_path / "CARD" / "Some-8B", [*good, *bad], {"kv_cache": {"num_kv_tokens": 4000}})
    log = load_public_log("llmservingsim", tmp_path)
    assert log.runs == ("CARD/Some-8B",)
    assert log.samples.ttft_s.tolist() == [2.0, 1.5]
    np.testing.assert_allclose(log.samples.tpot_s, [0.1, np.nan])
    assert log.samples.gaps.tolist() == [10.0, 0.0]
    assert log.samples.dropped == {"no_time": 1, "missing_prompt_length": 1, "bad_number": 1}
    assert column(log, "kv_capacity_tokens").tolist() == [4000.0] * 2
    assert column(log, "gpus").tolist() == [2.0] * 2
    assert log.extra["engine_running"].tolist() == [0.0, 5.0], "the series counts from the start of the run"


def test_llmservingsim_without_a_memory_block_has_a_capacity(tmp_path):
    serving_run(tmp_path / "vllm_runs" / "RTXPRO6000" / "Llama-3.1-8B", [serving_record(1.0, 2.0, 3.0)])
    assert column(load_public_log("llmservingsim", tmp_path), "kv_capacity_tokens").tolist() == [520_000.0]


def fleet_row(launch, ttft, generation, **changes):
    row = {
        "campaign": "v1", "system": "naive", "offered_qps": 0.5, "prompt_tokens": 1000.0,
        "generation_tokens": 11.0, "ttft": ttft, "generation_time": generation, "user_id": 3, "question_id": 1,
        "launch_time": launch, "finish_time": launch + ttft + generation,
    }  # fmt: skip
    return row | changes


def test_aibrix_counts_each_system_apart_and_knows_the_users_history(tmp_path):
    rows = [
        fleet_row(10.0, 2.0, 1.0), fleet_row(11.0, 0.1, 1.0, user_id=4),
        fleet_row(20.0, 0.1, 1.0, offered_qps=2.1), fleet_row(11.5, 1.0, 1.0, system="other"),
        fleet_row(12.0, -1.0, 1.0), fleet_row(12.0, 1.0, 1.0) | {"ttft": ""},
        fleet_row(12.0, 1.0, 1.0, prompt_tokens=0.0),
    ]  # fmt: skip
    write_csv(tmp_path / "requests.csv.gz", rows)
    log = load_public_log("aibrix", tmp_path)
    assert log.runs == ("qps=0.5", "qps=2.1")
    assert log.samples.dropped == {"no_time": 1, "bad_number": 1, "missing_prompt_length": 1}
    assert log.samples.decided_s.tolist() == [10.0, 11.0, 11.5, 20.0]
    assert column(log, "queue_depth").tolist() == [0.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(log.samples.tpot_s, 0.1)
    assert log.extra["user_turns"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert log.extra["user_gap_s"][3] == 10.0
    assert log.samples.codes.models == ("llama-3.1-8b@naive.v1", "llama-3.1-8b@other.v1")


def test_aibrix_history_never_uses_a_first_token_that_is_yet_to_come(tmp_path):
    rows = [fleet_row(10.0, 5.0, 1.0), fleet_row(14.9, 1.0, 1.0), fleet_row(15.1, 1.0, 1.0)]
    write_csv(tmp_path / "requests.csv", rows)
    recent = load_public_log("aibrix", tmp_path / "requests.csv").extra["recent_ttft_s"]
    assert np.isnan(recent[:2]).all()
    assert recent[2] == pytest.approx(5.0)


def test_vtc_counts_refusals_and_tells_the_card_from_the_run(tmp_path):
    def row(run, first, whole, outputs=11, prompt=20):
        return {
            "run": run, "client": 1, "prompt_len": prompt, "output_len": outputs, "first_token_latency": first,
            "request_latency": whole, "req_time": 0.5,
        }  # fmt: skip

    rows = [
        row("FCFS/real", 1.0, 2.0), row("FCFS/real", -1, -1), row("ablation/x", 1.0, 3.0),
        row("FCFS/real", 2.0, 1.0), row("FCFS/real", 1.0, 2.0, prompt=0), row("FCFS/real", "", 2.0),
    ]  # fmt: skip
    write_csv(tmp_path / "runs.csv", rows)
    log = load_public_log("vtc", tmp_path)
    assert log.runs == ("FCFS/real", "ablation/x")
    assert log.samples.dropped == {"rejected": 1, "no_time": 1, "missing_prompt_length": 1, "bad_number": 1}
    np.testing.assert_allclose(log.samples.tpot_s, [0.1, 0.2])
    names = [log.samples.codes.gpu_types[int(code)] for code in column(log, "gpu_type")]
    assert names == ["A10G", "A100-80G"]


def test_adapter_runs_are_in_ms_and_runs_without_series_or_tpot_are_known(tmp_path):
    def row(name, **changes):
        return {
            "run": name, "model": "some-7b", "max_num_seqs": "", "max_loras": 8, "max_cpu_loras": 8,
            "max_lora_rank": 16, "adapters": 4, "success": 10, "duration_s": 100, "in_tokens": 2000,
            "out_tokens": 1000, "req_per_s": 0.1, "ttft_median_ms": 250, "tpot_median_ms": 20, "run_mean": 3,
            "wait_mean": 1, "kv_mean": 0.5, "offered_req_per_s": "",
        } | changes  # fmt: skip

    rows = [
        row("a/b/1"), row("a/c/2", out_tokens=10, tpot_median_ms=0), row("a/b/3", run_mean="", wait_mean=""),
        row("a/b/4", success="x"), row("a/b/5", ttft_median_ms=0),
    ]  # fmt: skip
    write_csv(tmp_path / "runs.csv.gz", rows)
    log = load_public_log("adapters", tmp_path)
    assert log.runs == ("a/b", "a/c")
    assert log.samples.ttft_s.tolist() == [0.25, 0.25]
    np.testing.assert_allclose(log.samples.tpot_s, [0.02, np.nan])
    assert log.samples.dropped == {"no_series": 1, "bad_number": 1, "no_time": 1}
    assert column(log, "input_tokens").tolist() == [200.0, 200.0]
    assert np.isnan(log.extra["max_num_seqs"]).all()


def silicon_row(number, **changes):
    return {
        "id": number, "silicon_data_source": f"s{number}", "backend": "vllm", "backend_version": "", "mode": "agg",
        "model_path": "org/Llama-3.1-70B", "system": "h100_sxm", "precision": "fp8", "isl": 1024, "osl": 128,
        "gemm_quant_mode": "fp8", "batch_size": 8, "tp_size": 4, "pp_size": 1, "attention_dp_size": 2,
        "moe_tp_size": 1, "moe_ep_size": 0, "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 20.0,
    } | changes  # fmt: skip


def test_silicon_leaves_out_repeats_and_disaggregated_points(tmp_path):
    rows = [
        silicon_row(1), silicon_row(2), silicon_row(3, mode="disagg", batch_size=""), silicon_row(4, isl="many"),
        silicon_row(5, silicon_tpot_ms=0), silicon_row(6, batch_size=0), silicon_row(7, tp_size=8),
    ]  # fmt: skip
    write_csv(tmp_path / "silicon_sample.csv", rows)
    log = load_public_log("silicon", tmp_path)
    assert log.samples.dropped == {
        "repeated": 1, "disaggregated": 1, "bad_number": 1, "no_time": 1, "missing_prompt_length": 1,
    }  # fmt: skip
    assert len(log.runs) == 2
    assert sorted(column(log, "gpus")) == [8.0, 16.0]
    assert column(log, "running").tolist() == [15.0, 15.0], "the batch size is that of one data-parallel rank"
    assert log.samples.ttft_s.tolist() == [0.1, 0.1]
    assert log.extra["ep"].tolist() == [1.0, 1.0], "0 and empty stand for a size that is not used"


def test_unknown_sources_and_paths_are_named(tmp_path):
    with pytest.raises(SettingError, match="burstgpt"):
        load_public_log("nothing", tmp_path)
    with pytest.raises(SettingError, match="no such file"):
        load_public_log("vtc", tmp_path / "absent")


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_an_empty_folder_is_an_error(source, tmp_path):
    with pytest.raises(LogError):
        load_public_log(source, tmp_path)


@pytest.mark.parametrize(("source", "name"), [("aibrix", "requests.csv"), ("vtc", "runs.csv")])
def test_a_file_without_a_usable_row_says_why(source, name, tmp_path):
    row = fleet_row(1.0, -1.0, 1.0) | {
        "run": "r", "prompt_len": 1, "output_len": 1, "first_token_latency": -1, "request_latency": -1,
        "req_time": 0,
    }  # fmt: skip
    write_csv(tmp_path / name, [row])
    with pytest.raises(LogError, match="no usable row"):
        load_public_log(source, tmp_path)
