"""Range queries to a Prometheus server, within a deadline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from data.errors import InputError
from data.types import FloatArray

MOST_BYTES = 64_000_000


class PrometheusError(InputError):
    """The server did not answer, or not with what was asked for. Its silence says nothing about demand."""


@dataclass(frozen=True, slots=True)
class RangeSeries:
    """One series of a range query.

    Attributes:
        labels: Its labels.
        values: One for each moment asked for; NaN = it had no sample then.
    """

    labels: Mapping[str, str]
    values: FloatArray


def query_range(
    url: str, query: str, times_s: FloatArray, timeout_s: float, headers: Mapping[str, str] | None = None
) -> list[RangeSeries]:
    """All series of ``query`` at equally spaced moments.

    Args:
        url: Base address of the server, such as ``http://prometheus:9090``.
        query: PromQL.
        times_s: Moments, rising, at least two, seconds since the epoch.
        timeout_s: The whole exchange may take so long (above 0).
        headers: Sent along, for example an authorization.

    Raises:
        PrometheusError: No answer in time, an error, or an answer of another form.
    """
    step_s = float(times_s[1] - times_s[0])
    asked = {
        "query": query,
        "start": f"{times_s[0]:.3f}",
        "end": f"{times_s[-1]:.3f}",
        "step": f"{step_s:.3f}",
    }
    try:
        body = asyncio.run(_post(url.rstrip("/") + "/api/v1/query_range", asked, timeout_s, headers or {}))
    except TimeoutError as error:
        raise PrometheusError(f"no answer within {timeout_s:g} s", source=url) from error
    except (aiohttp.ClientError, OSError) as error:
        raise PrometheusError(f"cannot be asked: {error}", source=url) from error
    return parse_range(body, times_s, url)


def parse_range(body: bytes, times_s: FloatArray, source: str) -> list[RangeSeries]:
    """The series of an answer; raises ``PrometheusError`` if it is not one of a range query."""
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise PrometheusError(f"refused: {answer.get('error', answer['status'])}", source=source)
        if answer["data"]["resultType"] != "matrix":
            raise PrometheusError("not a range of samples", source=source, value=answer["data"]["resultType"])
        return [_series(one, times_s) for one in answer["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrometheusError(f"answer cannot be read: {type(error).__name__}: {error}", source=source) from error


def _series(one: Any, times_s: FloatArray) -> RangeSeries:
    values = np.full(len(times_s), np.nan)
    step_s = float(times_s[1] - times_s[0])
    samples: Sequence[Any] = one["values"]
    for at, text in samples:
        place = round((float(at) - float(times_s[0])) / step_s)
        value = float(text)
        if 0 <= place < len(values) and np.isfinite(value):
            values[place] = value
    return RangeSeries({str(name): str(value) for name, value in one["metric"].items()}, values)


async def _post(url: str, form: Mapping[str, str], timeout_s: float, headers: Mapping[str, str]) -> bytes:
    limit = aiohttp.ClientTimeout(total=timeout_s)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.post(url, data=dict(form), headers=dict(headers), allow_redirects=False) as answer,
    ):
        body = await answer.content.read(MOST_BYTES + 1)
        while not answer.content.at_eof() and len(body) <= MOST_BYTES:
            body += await answer.content.read(MOST_BYTES + 1 - len(body))
        if len(body) > MOST_BYTES:
            raise PrometheusError("answer too large", source=url, expected=f"at most {MOST_BYTES:,} bytes")
        # Errors of the query come as JSON with a status of 4xx; what a proxy says is no JSON.
        if answer.status >= 300 and not body.lstrip().startswith(b"{"):
            raise PrometheusError(f"answered {answer.status} {answer.reason}", source=url)
        return body
