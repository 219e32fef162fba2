"""The fast reader of metrics pages against a plain one made of prometheus_client's parser."""

from __future__ import annotations

from math import isfinite

import hypothesis.strategies as st
from hypothesis import given, settings
from prometheus_client.parser import text_string_to_metric_families

from router.engines.aliases import Group, Series, combine
from router.engines.page import TextPageReader
from router.engines.registry import ENGINES, page_reader
from router.engines.sglang import SGLANG
from router.engines.vllm import VLLM

TEXTS = [VLLM, SGLANG]
VALUES = st.one_of(
    st.floats(0, 1e12, allow_nan=False).map(repr),
    st.integers(0, 10**9).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "-3", "1e3", "0", "0.5"]),
)
LABEL_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[str, dict[str, str]]]:
    """Series of a page, those of one metric together and each once."""
    adapter = draw(st.sampled_from(TEXTS))
    known = sorted({a.of.name for row in adapter.rows for a in row.aliases})
    names = draw(st.lists(st.sampled_from([*known, "other_metric", known[0] + "_more"]), unique=True, max_size=8))
    found = []
    for name in names:
        for engine in range(draw(st.integers(1, 3))):
            labels = {"engine": str(engine), "model_name": draw(LABEL_TEXT)}
            if draw(st.booleans()):
                labels["num_gpu_blocks"] = draw(st.sampled_from(["100", "None", "7"]))
            if draw(st.booleans()):
                labels["tp_rank"] = draw(st.sampled_from(["0", "1"]))
            found.append((name, labels))
    return found


def line(name: str, labels: dict[str, str], value: str) -> str:
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


def plain(adapter, text: str):  # type: ignore[no-untyped-def]
    """The same reading by way of a complete parse."""
    wanted = {s for row in adapter.rows for a in row.aliases for s in (a.of, a.over) if s is not None}
    samples: dict[Series, dict[Group, float]] = {}
    bad = 0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for series in (s for s in wanted if s.name == sample.name):
                if any(sample.labels.get(part) for part in adapter.part_labels):
                    continue
                if any(sample.labels.get(k) != v for k, v in series.labels):
                    continue
                value = sample.value
                if series.value_label:
                    if series.value_label not in sample.labels:
                        continue
                    try:
                        value = float(sample.labels[series.value_label])
                    except ValueError:
                        bad += 1
                        continue
                if not isfinite(value):
                    bad += 1
                    continue
                dropped = {k for k, _ in series.labels} | {*adapter.shard_labels, *adapter.part_labels}
                group = tuple(sorted((k, v) for k, v in sample.labels.items() if k not in dropped))
                ranks = samples.setdefault(series, {})
                ranks[group] = max(value, ranks.get(group, value))
    return combine(adapter, samples, bad)


@settings(max_examples=150, deadline=None)
@given(layouts(), st.data())
def test_it_reads_what_a_complete_parse_reads(
    layout: list[tuple[str, dict[str, str]]], data: st.DataObject
) -> None:
    """Several pages of one layout through one reader: by memory or line by line, the same numbers."""
    for adapter in TEXTS:
        reader = TextPageReader(adapter)
        for _ in range(3):
            values = [data.draw(VALUES) for _ in layout]
            text = "# HELP a text\n" + "".join(line(*s, v) for s, v in zip(layout, values, strict=True))
            fast, slow = reader.read(text.encode()), plain(adapter, text)
            assert dict(fast.values) == dict(slow.values)
            assert fast.missing == slow.missing
            assert fast.bad_samples == slow.bad_samples


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_no_page_makes_it_fail(pages: list[bytes]) -> None:
    for kind in ENGINES:
        reader = page_reader(kind)
        for page in pages:
            for shown in (page, b'vllm:num_requests_running{a="' + page + b'"} 1'):
                reading = reader.read(shown)
                assert all(isfinite(value) for value in reading.values.values())


@settings(max_examples=100, deadline=None)
@given(layouts(), layouts(), st.randoms(use_true_random=False))
def test_another_layout_between_two_pages_changes_nothing(first, second, random) -> None:  # type: ignore[no-untyped-def]
    """What a reader remembers never leaks from one page into the next of another length."""
    pages = ["".join(line(*s, str(random.randrange(9))) for s in layout) for layout in (first, second, first)]
    reader = TextPageReader(VLLM)
    for text in pages:
        if len(first) != len(second):
            assert dict(reader.read(text.encode()).values) == dict(plain(VLLM, text).values)
