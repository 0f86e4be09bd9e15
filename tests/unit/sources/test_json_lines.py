"""JSONL: what is a line, what is a row, and what a range of bytes holds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from draftmill.errors import PermanentError
from draftmill.sources.readers.files import sniff
from draftmill.sources.readers.json_lines import DAMAGED, read_lines


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg"
    data = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
    assert list(read_lines(write(tmp_path / "a.jsonl", data))) == [{"text": text}]


def test_bom_carriage_returns_blank_lines_and_a_missing_last_line_feed(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"a": 1}\r\n\r\n   \n{"a": 2}\r\n{"a": 3}'
    assert list(read_lines(write(tmp_path / "a.jsonl", data))) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_damaged_line_is_marked_and_reading_goes_on(tmp_path: Path) -> None:
    data = b'{"a": 1}\n{"a": \n{"a": 3}\nnull\n"text"\n{"a": 4}{"a": 5}\n'
    rows = list(read_lines(write(tmp_path / "a.jsonl", data)))
    assert rows == [{"a": 1}, DAMAGED, {"a": 3}, None, "text", DAMAGED]


def test_what_a_strict_parser_refuses_is_still_read(tmp_path: Path) -> None:
    data = b'{"a": "\\ud83d"}\n{"a": NaN}\n{"a": "\xff"}\n{"a": ' + b"9" * 40 + b"}\n"
    lone, nan, broken, huge = read_lines(write(tmp_path / "a.jsonl", data))
    assert lone == {"a": "\ud83d"}
    assert nan["a"] != nan["a"]
    assert broken == {"a": "\ufffd"}
    assert huge["a"] >= 10**39


def test_ids_stay_strings(tmp_path: Path) -> None:
    rows = [{"id": "0012"}, {"id": "1e5"}, {"id": "NaN"}, {"id": "2024-01-01"}]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    assert list(read_lines(write(tmp_path / "a.jsonl", data))) == rows


@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_ranges_share_out_every_line_once(tmp_path: Path, step: int) -> None:
    rows = [{"n": number, "text": "x" * (number % 40)} for number in range(50)]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path = write(tmp_path / "a.jsonl", data)
    found = [row for start in range(0, len(data), step) for row in read_lines(path, start, start + step)]
    assert found == rows


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def parallel_zstd(data: bytes) -> bytes:
    """As pzstd writes it: frames one after another, each behind a frame to be skipped that holds its size."""
    frames = [zstd(data[start : start + 10_000]) for start in range(0, len(data), 10_000)]
    return b"".join(b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + len(frame).to_bytes(4, "little") + frame for frame in frames)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("gzip", gzip.compress),
        ("gzip", lambda data: gzip.compress(data[:900]) + gzip.compress(data[900:])),
        ("zstd", zstd),
        ("zstd", parallel_zstd),
    ],
)
def test_compressed_lines_are_known_by_their_first_bytes(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    data = b'{"a": 1}\n' * 5000
    path = write(tmp_path / "no-suffix", pack(data))
    assert sniff(path) == ("lines", name)
    assert list(read_lines(path)) == [{"a": 1}] * 5000


def test_compressed_data_that_ends_early_is_an_error_and_not_a_short_source(tmp_path: Path) -> None:
    data = gzip.compress(b"".join(json.dumps({"n": number}).encode() + b"\n" for number in range(5000)))
    path = write(tmp_path / "a.jsonl.gz", data[: len(data) // 2])
    with pytest.raises(PermanentError, match="ends early"):
        list(read_lines(path))
