"""All engine adapters by name, and the reader that fits each."""

from __future__ import annotations

from typing import Protocol

from router.engines.aliases import EngineAdapter, Reading
from router.engines.json_page import JsonPageReader
from router.engines.page import TextPageReader
from router.engines.sglang import SGLANG
from router.engines.triton import TRITON
from router.engines.trtllm import TRTLLM, TRTLLM_JSON
from router.engines.vllm import VLLM

ENGINES: dict[str, EngineAdapter] = {
    adapter.kind: adapter for adapter in (VLLM, SGLANG, TRTLLM, TRTLLM_JSON, TRITON)
}
"""Every kind of engine that a fleet file may name."""


class PageReader(Protocol):
    """Reads the pages of one endpoint, one after the other."""

    def read(self, page: bytes) -> Reading:
        """The quantities on a page; never fails."""
        ...


def page_reader(kind: str) -> PageReader:
    """A new reader for an endpoint of that kind; ``KeyError`` for a kind that is not in ``ENGINES``."""
    adapter = ENGINES[kind]
    return TextPageReader(adapter) if adapter.form == "text" else JsonPageReader(adapter)
