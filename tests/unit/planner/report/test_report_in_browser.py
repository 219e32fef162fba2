"""The report in a real browser at two widths: it draws every chart, fits the page and runs no text of a user."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from planner.compare import Comparison
from planner.report.data import ReportData
from planner.report.html import write_report

BROWSER = next(
    (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine"),
]
PROBE = """
<body style="margin:0"><iframe id="frame" src="report.html" style="border:0;width:%dpx;height:900px"></iframe>
<script>
window.addEventListener("load", () => setTimeout(() => {
  const frame = document.getElementById("frame"), page = frame.contentDocument, root = page.documentElement;
  const wide = [...page.querySelectorAll(".chart")].filter((box) => {
    const drawn = box.querySelector("svg.main-svg");
    return !drawn || drawn.getBoundingClientRect().right > root.clientWidth + 1;
  });
  document.title = JSON.stringify({
    drawn: Number(root.dataset.drawn), charts: page.querySelectorAll(".chart svg.main-svg").length,
    wide: wide.map((box) => box.id), over: root.scrollWidth - root.clientWidth,
    maps: [...page.querySelectorAll(".map svg")].filter((map) => map.getBoundingClientRect().width > 0).length,
    untouched: frame.contentWindow.owned === undefined,
  });
}, 1500));
</script></body>
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_report_draws_and_fits(
    tmp_path: Path,
    width: int,
    report_maker: Callable[..., ReportData],
    comparison_maker: Callable[..., Comparison],
) -> None:
    hostile = '</script><img src=x onerror="window.owned=1">'
    write_report(report_maker(comparison_maker(), hostile=hostile), tmp_path / "report.html")
    (tmp_path / "probe.html").write_text(PROBE % width)
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000",
        "--window-size=1400,1000", "--dump-dom", (tmp_path / "probe.html").as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None, "the probe ran"
    seen = json.loads(unescape(title[1]))
    assert seen.pop("charts") >= seen["drawn"]
    assert seen == {"drawn": 10, "wide": [], "over": 0, "maps": 1, "untouched": True}
