"""Fetch one page of one server again and again: kept connection, deadline, bound, no redirects, no proxies."""

from __future__ import annotations

import asyncio

import aiohttp

from data.errors import TokenFleetError
from data.fleet.addresses import HttpAddress

SCRAPE_FAILURES: dict[str, str] = {
    "connect": "the connection was refused or lost",
    "timeout": "no complete answer within the deadline",
    "status": "an answer other than 200",
    "redirect": "an answer 3xx; redirects are never followed",
    "too_large": "the answer is longer than the bound",
    "protocol": "the answer is not HTTP, or compressed although plain text was asked for",
}
"""Why a fetch may fail."""

HEADERS = {"Accept": "text/plain;version=0.0.4,application/json", "Accept-Encoding": "identity"}


class ScrapeError(TokenFleetError):
    """One fetch failed. ``reason`` is one word for counters, from ``SCRAPE_FAILURES``."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class PageFetcher:
    """Fetches one page; has a connection of its own, so a silent server holds up nobody else.

    Args:
        address: The server.
        path: Path of the page, query included.
        max_bytes: Longest page that is taken; a longer one is given up, not read to its end.
    """

    def __init__(self, address: HttpAddress, path: str, max_bytes: int) -> None:
        self._url = f"{'https' if address.tls else 'http'}://{address.authority}{path}"
        self._max_bytes = max_bytes
        self._session: aiohttp.ClientSession | None = None

    async def get(self, deadline_s: float) -> bytes:
        """The page.

        Raises:
            ScrapeError: It did not come within ``deadline_s``, or not whole.
        """
        try:
            async with asyncio.timeout(deadline_s):
                return await self._get()
        except TimeoutError as error:
            raise ScrapeError("timeout", f"no complete answer within {deadline_s:g} s") from error
        except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError) as error:
            raise ScrapeError("connect", str(error) or type(error).__name__) from error
        except (aiohttp.ClientError, ValueError) as error:
            # A host name that no resolver takes is a ValueError.
            raise ScrapeError("protocol", str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Drop the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self) -> bytes:
        if self._session is None:
            # The deadline is ours: one timer a fetch instead of four.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=1),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                headers=HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        async with self._session.get(self._url, allow_redirects=False) as response:
            if 300 <= response.status < 400:
                raise ScrapeError("redirect", f"answer {response.status}; redirects are not followed")
            if response.status != 200:
                raise ScrapeError("status", f"answer {response.status}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ScrapeError("protocol", "compressed although plain text was asked for")
            if (response.content_length or 0) > self._max_bytes:
                raise ScrapeError("too_large", f"{response.content_length} bytes, at most {self._max_bytes}")
            return await self._body(response)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._max_bytes:
                response.close()
                raise ScrapeError("too_large", f"more than {self._max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)
