"""Results of ``vllm bench serve --save-detailed``: one JSON object with one list an attribute.

Used are ``input_lens``, ``output_lens``, ``start_times`` (s, a monotonic clock), ``errors`` and ``model_id``; the
latencies are not part of a trace. The document is read at once (at most 2 GiB unpacked), its inter-token latencies
and texts are skipped unparsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from data.errors import TraceError
from data.traces.assemble import READ_ROWS, Habits, assemble
from data.traces.chunk import Chunk, ChunkBuilder
from data.traces.clock import checked_stamp
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject
from data.traces.source import TextSource
from data.types import TraceBatch

MAX_BYTES = 2 << 30


class _Result(msgspec.Struct):
    input_lens: list[Any]
    output_lens: list[Any]
    start_times: list[Any] | None = None
    errors: list[Any] | None = None
    model_id: str = ""


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one result in order of the start times."""
    return assemble(_chunks(source, options, report), Habits(), options, report)


def _chunks(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[Chunk]:
    result = _document(source)
    count = len(result.input_lens)
    starts = result.start_times or []
    if len(result.output_lens) != count or len(starts) != count:
        raise TraceError(
            f"lists of {count} input_lens, {len(result.output_lens)} output_lens and {len(starts)} start_times",
            source=str(source.path),
            expected="lists of equal length, as --save-detailed writes them",
        )
    errors = (result.errors or [])[:count]
    builder = ChunkBuilder()
    builder.is_date = False
    columns = zip_longest(starts, result.input_lens, result.output_lens, errors, fillvalue="")
    for place, (at, n_in, n_out, error) in enumerate(columns, start=1):
        if options.max_rows is not None and place > options.max_rows:
            break
        report.rows += 1
        _add(builder, place, (at, n_in, n_out, error), result.model_id, report)
        if len(builder) >= READ_ROWS:
            yield builder.build()
            builder = ChunkBuilder()
            builder.is_date = False
    if len(builder):
        yield builder.build()


def _add(builder: ChunkBuilder, place: int, row: tuple[Any, ...], model: str, report: ReadReport) -> None:
    at, n_in, n_out, error = row
    if error:
        report.reject(Reject.FAILED, place, "an error is recorded")
        return
    if type(n_in) is not int or type(n_out) is not int or type(at) not in (int, float):
        report.reject(Reject.BAD_FIELD, place, "no number")
        return
    try:
        builder.add(place, checked_stamp(at), n_in, n_out, texts={"model": model})
    except ValueError as problem:
        report.reject(Reject.BAD_FIELD, place, str(problem))


def _document(source: TextSource) -> _Result:
    try:
        return msgspec.json.decode(source.document(MAX_BYTES), type=_Result)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(
            f"is no result of one benchmark run: {error}",
            source=str(source.path),
            expected="one JSON object with input_lens, output_lens and start_times",
        ) from error


def sniff(head: Head) -> str | None:
    """Why this looks like a benchmark result, or ``None``."""
    names = (b'"input_lens"', b'"output_lens"')
    if head.first_object().keys() >= {"input_lens", "output_lens"}:
        return "a JSON object with input_lens and output_lens"
    told = b'"request_throughput"' in head.text or all(name in head.text for name in names)
    if head.text.lstrip().startswith(b"{") and told:
        return "a JSON object that begins like a vLLM benchmark result"
    return None


FORMAT = TraceFormat(
    name="vllm_bench",
    description="vLLM serving benchmark result, detailed",
    sniff=sniff,
    read=read,
)
