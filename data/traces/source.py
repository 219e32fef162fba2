"""Lines of a text file, plain or gzipped, UTF-8 or UTF-16, in blocks of bounded size."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from data.errors import TraceError
from data.traces.report import ReadReport, Reject
from data.types import IntArray

PIECE_BYTES = 1 << 20
BLOCK_BYTES = 8 << 20
LINE_BYTES = 256 << 20
"""A longer line is refused without being held in memory."""
HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Lines without their ends and without blank ones; ``numbers`` are their places in the file, from 1."""

    lines: list[bytes]
    numbers: IntArray


class TextSource:
    """The lines of one file.

    Memory: one block (8 MiB or ``rows`` lines) and one line. ``position`` and ``size`` are bytes of the file as
    it lies on disk, for progress.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                self._gzipped = file.read(2) == b"\x1f\x8b"
        except OSError as error:
            raise TraceError(f"cannot be opened: {error.strerror or error}", source=str(path)) from error
        self.position = 0

    def head(self) -> bytes:
        """The first 64 KiB of text, as UTF-8."""
        pieces = []
        with closing(self._pieces(HEAD_BYTES)) as source:
            for piece in source:
                pieces.append(piece)
                if sum(map(len, pieces)) >= HEAD_BYTES:
                    break
        return b"".join(pieces)[:HEAD_BYTES]

    def document(self, limit: int) -> bytes:
        """The whole text; ``TraceError`` if it is longer than ``limit`` bytes."""
        pieces, held = [], 0
        for piece in self._pieces(PIECE_BYTES):
            pieces.append(piece)
            held += len(piece)
            if held > limit:
                raise TraceError(f"is longer than {limit >> 20} MiB", source=str(self.path))
        return b"".join(pieces)

    def blocks(self, report: ReadReport, rows: int = 8192) -> Iterator[LineBlock]:
        """All lines in order, ``rows`` a block at most."""
        lines: list[bytes] = []
        held, number = 0, 1
        for line in self._lines(report):
            lines.extend(line)
            held += sum(map(len, line))
            while len(lines) >= rows or (held >= BLOCK_BYTES and lines):
                part, lines = lines[:rows], lines[rows:]
                yield _block(part, number, report)
                number += len(part)
                held = sum(map(len, lines))
        if lines:
            yield _block(lines, number, report)

    def _lines(self, report: ReadReport) -> Iterator[list[bytes]]:
        """Complete lines, those of one piece together. A line that is too long becomes a blank one."""
        parts: list[bytes] = []
        held, number = 0, 1
        for piece in self._pieces(PIECE_BYTES):
            cut = piece.rfind(b"\n")
            if cut < 0:
                held += len(piece)
                if held <= LINE_BYTES:
                    parts.append(piece)
                else:
                    parts = []
                continue
            text = b"".join([*parts, piece[:cut]])
            if held > LINE_BYTES:
                report.rows += 1
                report.reject(Reject.LINE_TOO_LONG, number, f"longer than {LINE_BYTES >> 20} MiB")
                text = b"\n" + piece[:cut].partition(b"\n")[2] if b"\n" in piece[:cut] else b""
            found = text.split(b"\n")
            number += len(found)
            yield found
            parts = [piece[cut + 1 :]]
            held = len(parts[0])
        if held > LINE_BYTES:
            report.rows += 1
            report.reject(Reject.LINE_TOO_LONG, number, f"longer than {LINE_BYTES >> 20} MiB")
        elif held:
            yield [b"".join(parts)]

    def _pieces(self, size: int) -> Generator[bytes, None, None]:
        """UTF-8 bytes. What is no valid UTF-16 becomes U+FFFD and fails where it is parsed."""
        try:
            with self.path.open("rb") as raw, _unpacked(raw, self._gzipped) as file:
                first = file.read(size)
                decoder = _utf16_decoder(first)
                if decoder is None:
                    first = first.removeprefix(codecs.BOM_UTF8)
                while first:
                    yield first if decoder is None else decoder.decode(first).encode("utf-8", "replace")
                    self.position = raw.tell()
                    first = file.read(size)
        except (EOFError, zlib.error, OSError) as error:
            raise TraceError(f"cannot be read to its end: {error}", source=str(self.path)) from error


def _unpacked(raw: IO[bytes], gzipped: bool) -> IO[bytes]:
    return gzip.GzipFile(fileobj=raw) if gzipped else raw  # type: ignore[return-value]


def _utf16_decoder(first: bytes) -> codecs.IncrementalDecoder | None:
    """A decoder if the text is UTF-16: by its byte order mark, or by zero bytes at every other place."""
    name = None
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    elif len(first) >= 4 and first[:4:2].isalnum() and first[1:4:2] == b"\0\0":
        name = "utf-16-le"
    elif len(first) >= 4 and first[1:4:2].isalnum() and first[:4:2] == b"\0\0":
        name = "utf-16-be"
    return codecs.getincrementaldecoder(name)("replace") if name else None


def _block(lines: list[bytes], first: int, report: ReadReport) -> LineBlock:
    numbers = np.arange(first, first + len(lines), dtype=np.int64)
    if any(line.endswith(b"\r") for line in lines):
        lines = [line.removesuffix(b"\r") for line in lines]
    if b"" in lines:
        full = [place for place, line in enumerate(lines) if line]
        report.blank_lines += len(lines) - len(full)
        numbers = numbers[full]
        lines = [lines[place] for place in full]
    return LineBlock(lines, numbers)
