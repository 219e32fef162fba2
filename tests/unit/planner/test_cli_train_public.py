"""``tokenfleet train --public``: from a public log's file to a published model."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from data.errors import InputError, ModelError, SettingError
from models.store import ModelStore
from planner.cli.main import cli
from planner.retrain import RetrainJob, retrain


def queue_runs(path, runs=6, rows=300):
    """Invented single-server queues in the VTC format, each run at its own rate."""
    random = np.random.default_rng(0)
    lines = ["run,client,prompt_len,output_len,first_token_latency,request_latency,req_time"]
    for run in range(runs):
        clock = free = 0.0
        for _ in range(rows):
            clock += random.exponential(0.2 + 0.05 * run)
            prompt, output = int(random.integers(10, 1000)), int(random.integers(2, 300))
            free = max(free, clock) + 0.02 + 3e-4 * prompt
            first = (free - clock) * float(np.exp(random.normal(0, 0.05)))
            lines.append(f"r{run},0,{prompt},{output},{first},{first + 0.03 * (output - 1)},{clock}")
        lines.append(f"r{run},0,10,10,-1,-1,{clock}")
    path.write_text("\r\n".join(lines))


def run(*arguments):
    return CliRunner().invoke(cli, ["train", *arguments])


def test_a_public_log_becomes_a_published_model(tmp_path):
    queue_runs(tmp_path / "runs.csv")
    done = run("--public", f"vtc={tmp_path / 'runs.csv'}", "--store", str(tmp_path / "store"), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["version"] == "v0001"
    assert told["data"]["rows"] == 1800
    assert told["data"]["left_out"] == {"vtc:rejected": 6}
    overall = next(one for one in told["report"]["model"]["groups"] if one["target"] == "ttft_s")
    assert overall["median_error"] < 0.4
    assert told["report"]["gate"]["promote"] is told["promoted"] is True
    assert {one["group"] for one in told["report"]["peer"]["groups"]} >= {"all", "load:idle"}
    page = tmp_path / "store" / "reports" / "v0001.html"
    assert told["page"] == str(page)
    assert "Latency model v0001" in page.read_text()
    own = tmp_path / "own.html"
    again = run(
        "--public", f"vtc={tmp_path / 'runs.csv'}", "--store", str(tmp_path / "store"), "--report", str(own)
    )
    assert again.exit_code == 0, again.output
    assert f"report: {own}" in again.stdout
    assert "does not beat the serving model" in own.read_text(), "the same model again"
    compared = CliRunner().invoke(cli, ["models", "compare", "v0001", "v0002", "--store", str(tmp_path / "store")])
    assert "TTFT: predicted / observed" in compared.stdout


def test_a_report_that_cannot_be_written_is_told_before_training(tmp_path):
    queue_runs(tmp_path / "runs.csv", runs=1, rows=3)
    nowhere = tmp_path / "none" / "page.html"
    done = run(
        "--public", f"vtc={tmp_path / 'runs.csv'}", "--store", str(tmp_path / "s"), "--report", str(nowhere)
    )
    assert isinstance(done.exception, InputError)
    assert "no such folder" in str(done.exception)


def test_exactly_one_kind_of_log_is_asked_for(tmp_path):
    store = ("--store", str(tmp_path / "store"))
    for arguments in ((), ("--log", "a", "--public", "vtc=b")):
        done = run(*arguments, *store)
        assert done.exit_code == 2
        assert "--log or --public" in done.output


@pytest.mark.parametrize("text", ["vtc", "=runs.csv", "vtc=", "nothing=.", "vtc=absent.csv"])
def test_a_public_log_that_cannot_be_meant_is_named(text, tmp_path):
    done = run("--public", text, "--store", str(tmp_path / "store"))
    assert isinstance(done.exception, SettingError)


def test_a_log_without_tpot_cannot_train_alone(tmp_path):
    record = {"record_time": 3.0, "total_chunk_time": 2.0, "first_chunk_time": 1.0, "in_len": 9}
    (tmp_path / "detail_log_scale1.json").write_text(json.dumps({"0": record}))
    (tmp_path / "vllm_log_scale1.csv").write_text("timestamp,num_running,num_pending,gpu_kvcache_usage\n0,0,0,0\n")
    done = run("--public", f"burstgpt={tmp_path}", "--store", str(tmp_path / "store"))
    assert isinstance(done.exception, ModelError)
    assert "no TPOT" in str(done.exception)


def test_retraining_takes_logs_of_one_kind(tmp_path):
    queue_runs(tmp_path / "runs.csv", runs=1, rows=3)
    job = RetrainJob(logs=[tmp_path], kinds={}, created_at="", public=[("vtc", tmp_path / "runs.csv")])
    with pytest.raises(SettingError, match="two kinds"):
        retrain(job, ModelStore(tmp_path / "store"))


REAL = {
    "adapters": ["adapters"],
    "aibrix": ["aibrix"],
    "burstgpt": ["burstgpt", "llmservingsim"],  # it knows no TPOT, so another log must
    "llmservingsim": ["llmservingsim"],
    "silicon": ["silicon"],
    "vtc": ["vtc"],
}
FOLDERS = {
    "adapters": "adapter-serving-h100",
    "aibrix": "aibrix-fleet",
    "burstgpt": "burstgpt-vllm-replay",
    "llmservingsim": "llmservingsim",
    "silicon": "aiconfigurator",
    "vtc": "vtc",
}


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("source", sorted(REAL))
def test_every_public_log_trains(source, shared_data, tmp_path):
    logs = [("--public", f"{name}={shared_data / FOLDERS[name]}") for name in REAL[source]]
    done = run(*(part for log in logs for part in log), "--store", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["data"]["rows"] >= 900
    assert {one["target"] for one in told["report"]["model"]["groups"]} == {"ttft_s", "tpot_s"}
    assert (tmp_path / "reports" / "v0001.html").stat().st_size > 1e6
