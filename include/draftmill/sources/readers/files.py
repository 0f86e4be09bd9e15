"""Opening files: local or remote, compressed or not, and finding out what they hold by their first bytes rather than by their name."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any, Literal, cast

import orjson

from draftmill.errors import PermanentError, TemporaryError

Format = Literal["lines", "values", "parquet"]
"""lines: JSONL. values: a JSON array, or JSON values one after another. parquet: Parquet."""

BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_HEAD_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20


def is_remote(path: str) -> bool:
    """Whether `path` is a URL that fsspec opens."""
    return "://" in path


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a sentence.

    PermanentError where the file is absent, or its compressed data is damaged or ends early; TemporaryError where the network fails.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise PermanentError(f"{path}: compressed data is damaged or ends early ({error}); fetch the file again") from None
    except OSError as error:
        if is_remote(path):
            raise TemporaryError(f"{path}: reading stopped: {error}; check the network, then retry") from None
        raise PermanentError(f"{path}: cannot be read ({error.strerror or error}); check the path, or fetch the file again") from None


def open_raw(path: str) -> IO[bytes]:
    """The file's bytes as they are stored."""
    if not is_remote(path):
        return open(path, "rb", buffering=_BUFFER_BYTES)  # noqa: PTH123 - the caller closes it
    import fsspec

    return cast("IO[bytes]", fsspec.open(path, "rb").open())


def compression(head: bytes) -> str | None:
    """`gzip`, `zstd` or None, by the first four bytes. Parallel compressors begin Zstandard files with a frame to be skipped."""
    skippable = head[1:] == _ZSTD_SKIPPABLE and head[0] >> 4 == 0x5
    return "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) or skippable else None


@contextlib.contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed as they are read, with a `readline` that is quick."""
    with open_raw(path) as stream:
        kind = compression(stream.read(4))
        stream.seek(0)
        if kind == "gzip":
            with gzip.GzipFile(fileobj=stream) as text:
                yield cast("IO[bytes]", text)
        elif kind == "zstd":
            import pyarrow

            with pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, mode="r"), "zstd") as raw:
                yield io.BufferedReader(raw, _BUFFER_BYTES)
        else:
            yield io.BufferedReader(cast("Any", stream), _BUFFER_BYTES) if is_remote(path) else stream


def sniff(path: str) -> tuple[Format, str | None]:
    """What the file holds, and how it is compressed. PermanentError where it is neither JSON nor Parquet."""
    with reading(path):
        with open_raw(path) as raw:
            head = raw.read(4)
        if head == _PARQUET:
            return "parquet", None
        with open_text(path) as stream:
            return _json_format(stream.read(_HEAD_BYTES), path), compression(head)


def _json_format(head: bytes, path: str) -> Format:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PermanentError(f"{path}: is UTF-16; convert it to UTF-8 first")
    body = head.removeprefix(BOM).lstrip()
    first, _, rest = body.partition(b"\n")
    if body.startswith(b"[") and not (rest.strip() and _is_whole(first)):
        return "values"
    if not body or body.startswith(b"[") or b"\n{" in body or (body.startswith(b"{") and first.rstrip().endswith(b"}")):
        # Where the first line is damaged, the lines that follow decide.
        return "lines"
    if body.startswith(b"{"):
        # An object over several lines, or one line longer than the head.
        return "values" if b"\n" in body else "lines"
    raise PermanentError(f"{path}: is neither JSON, JSONL nor Parquet; convert it, or leave it out of 'path'")


def _is_whole(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def size_of(path: str) -> int:
    """Stored size in bytes."""
    with reading(path), open_raw(path) as stream:
        return stream.seek(0, io.SEEK_END)
