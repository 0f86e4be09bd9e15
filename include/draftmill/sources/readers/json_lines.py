"""JSONL, split at line feeds only: U+2028, U+0085 and the like are text inside a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import orjson

from draftmill.sources.readers.files import BOM, open_text, reading


class Damaged:
    """Stands for a row that could not be read."""


DAMAGED = Damaged()


def parse_row(line: bytes) -> Any:
    """The value of one line, or DAMAGED. What orjson is too strict for (lone surrogates, NaN, broken UTF-8) gets a second chance."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            return json.loads(line.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return DAMAGED


def read_lines(path: str, start: int = 0, end: int | None = None) -> Iterator[Any]:
    """The values of the lines that begin in bytes [start, end), damaged ones as DAMAGED; blank lines are no rows.

    A range only makes sense where the file is not compressed.
    """
    with reading(path), open_text(path) as stream:
        for line in _lines(stream, start, end):
            stripped = line.strip()
            if stripped:
                yield parse_row(stripped)


def _lines(stream: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    position = start
    if start:
        # A line belongs to the range that holds its first byte: the one that runs into `start` belongs to the range before.
        stream.seek(start - 1)
        position += len(stream.readline()) - 1
    for line in stream:
        if end is not None and position >= end:
            return
        yield line if position else line.removeprefix(BOM)
        position += len(line)
