"""The demo, small: the whole loop through the real command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from data.fleet.reference import reference_fleet
from data.plan_io import read_plan
from planner.demo.settings import DemoSettings
from planner.demo.workload import ANALYST_PROMPT_TOKENS, INTERACTIVE_PROMPT_TOKENS, demo_trace


def tokenfleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner.cli.main", *arguments], capture_output=True, text=True, timeout=300
    )


def test_the_loop_runs_from_trace_to_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = tokenfleet("demo", "--out", str(out), "--seeds", "1", "--rate", "10", "--duration", "60", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["comparison"]
    figures = {arm["name"]: arm for arm in result["arms"]}
    assert {"tokenpilot", "round_robin", "least_request, unplanned"} <= set(figures)
    plan = read_plan(out / "plan.json")
    assert plan.objective <= plan.bound * (1 + 1e-6)
    page = (out / "report.html").read_text()
    assert "TokenFleet on four sites" in page
    assert list((out / "models").iterdir()), "the model store holds what was trained"
    again = tokenfleet("demo", "--out", str(out), "--seeds", "0")
    assert again.returncode == 2
    assert (out / "report.html").read_text() == page, "a refused call leaves what stands there"


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    done = tokenfleet("demo", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "precious" not in done.stdout
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_an_interrupt_while_the_log_is_written_stops_every_worker(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal: one word about it, no traceback of a worker."""
    argv = [sys.executable, "-u", "-m", "planner.cli.main", "demo", "--out", "demo", "--duration", "300"]
    process = subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("logging runs"):
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert (out, err.split()) == ("", ["interrupted"])
    assert not (tmp_path / "demo" / "report.html").exists()


def test_every_stream_of_the_workload_is_permitted_and_fits() -> None:
    fleet = reference_fleet("four-sites")
    for stream in demo_trace(DemoSettings().rate_per_s, 60.0).streams:
        tenant, model = fleet.tenant(stream.assign.tenant), fleet.model(stream.assign.model)
        sites = [site for site in fleet.sites if fleet.may_use(tenant, site, model.key)]
        assert any(site.role == "compute" for site in sites)
        longest = max(kind.max_input_tokens for kind in stream.profile.kinds)
        assert longest <= model.context_limit_tokens
    assert ANALYST_PROMPT_TOKENS > INTERACTIVE_PROMPT_TOKENS


@pytest.mark.parametrize("field", ["rate_per_s", "duration_s", "seeds"])
def test_sizes_out_of_range_are_named(field: str) -> None:
    with pytest.raises(Exception, match=field):
        DemoSettings(**{field: 0})
