"""One completion of one token, to see whether an engine really serves a model.

The prompt is a fixed word. Neither it nor the key nor any part of an answer stands in an error or a log line. No
redirects and no proxies: the key goes to the listed address alone.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import aiohttp

from data.errors import TokenFleetError
from data.fleet.addresses import parse_http_address
from router.feeds.probe_settings import ProbeSettings

PROBE_FAILURES: dict[str, str] = {
    "connect": "the connection was refused or lost",
    "timeout": "no complete answer within the deadline",
    "key": "401 or 403: the engine wants a key, or another one",
    "model": "404: no such path, or the model is not served under that name",
    "status": "another answer than 200, such as 500 or 503",
    "protocol": "an answer 200 without a completion",
    "other_model": "the completion came from a model of another name",
}
"""Why a probe may fail."""
UNHEARD = ("connect", "timeout")
"""Failures that do not even show that a process answers."""

_PROMPT = "ok"
_MOST_BYTES = 2**20


class ProbeError(TokenFleetError):
    """One probe failed. ``reason`` is one word for counters, from ``PROBE_FAILURES``."""

    def __init__(self, reason: str, message: str = "") -> None:
        self.reason = reason
        super().__init__(message or PROBE_FAILURES[reason])


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """What must answer.

    Attributes:
        endpoint_id: Whose it is.
        address: ``http://host:port`` or ``https://host:port``.
        model: Name under which the engine serves the model.
    """

    endpoint_id: str
    address: str
    model: str


class CompletionProbe:
    """Asks engines for completions. Belongs to one event loop; each call has a connection of its own.

    Args:
        settings: Path and deadline.
        key: Bearer token for the engines; empty = none.
    """

    def __init__(self, settings: ProbeSettings, key: str = "") -> None:
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, target: ProbeTarget) -> None:
        """Ask for one token of exactly this model; returns once it has come.

        Raises:
            ProbeError: It did not come.
        """
        deadline_s = self._settings.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                body = await self._answer(target)
        except TimeoutError as error:
            raise ProbeError("timeout", f"no complete answer within {deadline_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProbeError("connect") from error
        except ValueError as error:
            # Such as a host name that no resolver takes.
            raise ProbeError("protocol") from error
        _check(body, target.model)

    async def close(self) -> None:
        """Drop all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, target: ProbeTarget) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        address = parse_http_address(target.address)
        url = f"{'https' if address.tls else 'http'}://{address.authority}{self._settings.path}"
        asked = self._asked(target.model)
        async with self._session.post(url, json=asked, allow_redirects=False) as response:
            _check_status(response.status, target.model)
            parts, size = [], 0
            async for part in response.content.iter_any():
                size += len(part)
                if size > _MOST_BYTES:
                    response.close()
                    raise ProbeError("protocol", f"more than {_MOST_BYTES} bytes")
                parts.append(part)
            return b"".join(parts)

    def _asked(self, model: str) -> dict[str, object]:
        chat = self._settings.path.endswith("/chat/completions")
        prompt = {"messages": [{"role": "user", "content": _PROMPT}]} if chat else {"prompt": _PROMPT}
        return {"model": model, "max_tokens": 1, "temperature": 0, "stream": False, **prompt}


def _check_status(status: int, model: str) -> None:
    if status in (401, 403):
        raise ProbeError("key", f"answer {status}: the engine wants a key, or another one; see probe.key_file")
    if status == 404:
        hint = f"no such path, or no model {model!r} there; see probe.path and the endpoint's served_model"
        raise ProbeError("model", f"answer 404: {hint}")
    if status != 200:
        raise ProbeError("status", f"answer {status}")


def _check(body: bytes, model: str) -> None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProbeError("protocol") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list) or not answer["choices"]:
        raise ProbeError("protocol")
    # Some engines answer whatever name they are asked for, and tell what they really run.
    if (answer.get("model") or model) != model:
        raise ProbeError("other_model", f"the completion is not of {model!r}; see the endpoint's served_model")
