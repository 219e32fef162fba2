"""``docs/metrics.md`` and the metrics in the code are the same list."""

import re
from pathlib import Path

from router.observe.metric_catalog import METRICS, PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(rf"^\| `{PREFIX}(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def test_every_metric_stands_in_the_docs_and_nothing_else() -> None:
    written = {match[0]: match[1:] for match in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    coded = {
        metric.name + ("_total" if metric.kind == "counter" else ""): (
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels) or "–",
            metric.help,
        )
        for metric in METRICS
    }
    assert {name: tuple(row) for name, row in written.items()} == coded
