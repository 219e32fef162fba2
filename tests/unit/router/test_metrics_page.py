"""Reading a page in the Prometheus text format: aliases, ranks, bad samples, and what is remembered of a page."""

from __future__ import annotations

import pytest

from benchmarks.fakes.pages import Load, vllm_page
from router.engines.aliases import KV_BLOCKS, KV_USE, RUNNING, STARTED_AT_S, WAITING, Reading
from router.engines.page import FULL_EVERY, TextPageReader
from router.engines.sglang import SGLANG
from router.engines.triton import TRITON
from router.engines.vllm import VLLM


def read(text: str, adapter=VLLM) -> Reading:  # type: ignore[no-untyped-def]
    return TextPageReader(adapter).read(text.encode())


def test_the_alias_of_a_renamed_series_counts_and_an_absent_gauge_is_missing() -> None:
    """F015: the example of the case."""
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        reading = read(f'{name}{{model_name="m1"}} 0.97\nvllm:num_requests_running{{model_name="m1"}} 41\n')
        assert reading.get(KV_USE) == 0.97
        assert reading.get(RUNNING) == 41
        assert reading.missing == (WAITING,)
        assert reading.get(WAITING) != reading.get(WAITING)


def test_of_two_names_on_one_page_the_newer_counts() -> None:
    assert read("vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.2\n").get(KV_USE) == 0.2


def test_ranks_are_combined_and_a_nan_costs_one_sample() -> None:
    """F020: the example of the case."""
    reading = read(
        'vllm:num_requests_waiting{engine="0",model_name="m1"} 7\n'
        'vllm:num_requests_waiting{engine="1",model_name="m1"} 5\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m1"} 0.91\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m1"} 0.40\n'
        'vllm:num_preemptions_total{engine="0",model_name="m1"} NaN\n'
        "vllm:num_requests_running 3\n"
    )
    assert (reading.get(WAITING), reading.get(KV_USE)) == (12, 0.91)
    assert reading.bad_samples == 1
    assert reading.missing == ()


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-1", "1_000", "twelve", "", "1 2 3", "0x10", "1 soon"])
def test_a_bad_sample_drops_only_itself(text: str) -> None:
    """F020: NaN, infinite, negative or unparsable."""
    reading = read(f'vllm:num_requests_waiting{{engine="0"}} {text}\nvllm:num_requests_waiting{{engine="1"}} 5\n')
    assert reading.get(WAITING) == 5
    assert reading.bad_samples == 1


@pytest.mark.parametrize("labels", ['{a="b', "{a=b}", '{a="b" c="d"}', '{="b"}', '{a="b"'])
def test_broken_labels_of_a_wanted_series_are_a_bad_sample(labels: str) -> None:
    reading = read(f"vllm:num_requests_running{labels} 4\nvllm:num_requests_waiting 2\n")
    assert (RUNNING in reading.values, reading.get(WAITING), reading.bad_samples) == (False, 2, 1)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running 4",
        "vllm:num_requests_running{} 4",
        '  vllm:num_requests_running\t{ a = "b" , }\t4.0  ',
        'vllm:num_requests_running{model_name="a } \\" \\\\ 9"} 4e0',
        'vllm:num_requests_running{a="b"} 4 1790000000000',
        "vllm:num_requests_running 4 1790000000000",
    ],
)
def test_every_way_to_write_a_sample_is_read(line: str) -> None:
    reading = read(line + "\n")
    assert (reading.get(RUNNING), reading.bad_samples) == (4, 0)


def test_longer_names_and_comments_are_other_series() -> None:
    reading = read(
        "# vllm:num_requests_running 9\nvllm:num_requests_running_total 8\n"
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 3\nvllm:num_requests_waiting 5\n'
    )
    assert reading.values == {WAITING: 5}


def test_shards_repeat_each_other_and_replicas_add_up() -> None:
    """SGLang: two data-parallel ranks, each with two tensor-parallel shards that tell the same."""
    lines = [
        f'sglang:num_queue_reqs{{dp_rank="{dp}",model_name="m",tp_rank="{tp}"}} {4 + dp}\n'
        for dp in (0, 1)
        for tp in (0, 1)
    ]
    assert read("".join(lines), SGLANG).get(WAITING) == 9


def test_parts_of_a_total_are_not_added_to_it() -> None:
    text = "".join(
        f'sglang:num_queue_reqs{{model_name="m",priority="{priority}"}} {value}\n'
        for priority, value in (("", 7), ("0", 3), ("1", 4))
    )
    assert read(text, SGLANG).get(WAITING) == 7


def test_labels_select_the_part_of_a_metric_and_ratios_stand_in_for_a_share() -> None:
    text = (
        'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3\n'
        'nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 30\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 120\n'
    )
    reading = read(text, TRITON)
    assert (reading.get(WAITING), reading.get(RUNNING), reading.get(KV_USE)) == (3, 4, 0.25)
    assert read(text.replace("120", "0"), TRITON).missing == (KV_USE,)


def test_numbers_in_labels_are_read_and_bad_ones_counted() -> None:
    line = 'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{}"}} 1.0\n'
    assert read(line.format("8192")).get(KV_BLOCKS) == 8192
    reading = read(line.format("None"))
    assert (KV_BLOCKS in reading.values, reading.bad_samples) == (False, 1)


def test_pages_alike_but_for_their_numbers_are_not_looked_through_again() -> None:
    reader = TextPageReader(VLLM)
    for number in range(FULL_EVERY):
        assert reader.read(vllm_page(Load(running=number, waiting=10**number), 4)).get(WAITING) == 10**number
    assert reader.full_reads == 1
    reader.read(vllm_page(Load(), 4))
    assert reader.full_reads == 2


def test_a_line_more_or_less_or_another_label_is_noticed_at_once() -> None:
    reader = TextPageReader(VLLM)
    one = b'vllm:num_requests_waiting{engine="0"} 1\n'
    assert reader.read(one).get(WAITING) == 1
    assert reader.read(one + b'vllm:num_requests_waiting{engine="1"} 2\n').get(WAITING) == 3
    assert reader.read(one).get(WAITING) == 1
    assert reader.read(b"vllm:num_requests_running 5\n").values == {RUNNING: 5}
    assert reader.read(one.replace(b"0", b"7")).get(WAITING) == 1


def test_a_series_in_the_exact_place_of_another_line_is_found_before_long() -> None:
    reader = TextPageReader(VLLM)
    reader.read(b"vllm:num_requests_running 5\nsomething_else 1\n")
    page = b"vllm:num_requests_running 5\nvllm:num_requests_waiting 1\n"
    readings = [reader.read(page).get(WAITING) for _ in range(FULL_EVERY)]
    assert readings[-1] == 1


def test_the_start_of_the_process_is_read_to_the_second() -> None:
    assert read("process_start_time_seconds 1.79000012345e+09\n").get(STARTED_AT_S) == 1790000123.45
