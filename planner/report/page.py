"""What every page of a report is made of: templates, style, script, plotly.js and the data of its charts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import orjson
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from planner.report.charts import Chart


def render_page(template: str, charts: Sequence[Chart], context: dict[str, Any]) -> str:
    """The template as HTML text that opens without a network; the same input gives the same text.

    Args:
        template: File name beside this module.
        charts: Every chart that the template shows.
        context: Its other variables.
    """
    shared = {
        "style": Markup(_text("report.css")),
        "script": Markup(_text("report.js")),
        "plotly": Markup(_plotly()),
        "chart_data": Markup(script_json([_drawn(chart) for chart in charts])),
    }
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(shared | context)


def script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in, whatever text it holds; NaN becomes null."""
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _drawn(chart: Chart) -> dict[str, Any]:
    return {"id": chart.chart_id, "traces": chart.traces, "layout": chart.layout}


def _text(name: str) -> str:
    return resources.files("planner.report").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The script of plotly.js, some 5 MB, put into the page once."""
    from plotly.offline import get_plotlyjs  # a slow import that only a page needs

    script: str = get_plotlyjs()
    if "</script" in script.lower():
        raise ValueError("plotly.js holds an end tag of its own and cannot be put inside the page")
    return script
