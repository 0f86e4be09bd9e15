"""What the records of a data set say about themselves: what they were made from, and what is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.corpus.records import ids_path
from draftmill.errors import TemporaryError
from draftmill.files import FileLock, read_json, sha256_file
from draftmill.layout import CampaignFolder

SCHEMA = 1
"""Of the records and their meta file. A higher number makes all records be built again."""


class FileMark(BaseModel):
    """What a file was when it was written. `size` in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    sha256: str

    def fits(self, path: Path) -> bool:
        """Whether the file at `path` is still that, byte for byte."""
        return path.is_file() and path.stat().st_size == self.size and sha256_file(path) == self.sha256


class JournalMark(BaseModel):
    """What the journal was when it was read: its size in bytes, time and hash, and what was in it.

    lines: what its reader counted besides responses (unreadable lines, doubled ids, rows of older layouts).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    mtime_ns: int
    sha256: str
    responses: int = 0
    completion_tokens: int = 0
    lines: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> JournalMark:
        """The mark of the file at `path`. Time and size are taken first: a row appended meanwhile makes the mark old, never wrong."""
        state = path.stat()
        return cls(size=state.st_size, mtime_ns=state.st_mtime_ns, sha256=sha256_file(path))

    def same_or_hash(self, path: Path) -> str:
        """The hash of the file at `path`, read only where its size or time have changed."""
        state = path.stat()
        if (state.st_size, state.st_mtime_ns) == (self.size, self.mtime_ns):
            return self.sha256
        return sha256_file(path)


class RecordsMeta(BaseModel):
    """The file beside the records. rows_in = rows_kept + sum(dropped.values()).

    request: digest of everything the records depend on; the same request gives the same records.
    flagged: rows in doubt, by doubt, whether they were dropped or kept.
    named: ids of the first refused rows, by reason.
    model: what all rows of a corpus must have in common (tokenizer, template, vocabulary).
    servers, samplings: who answered, and with which parameters, with numbers of rows. described_servers: what is known of them.
    not_checked: quality tests that could not be made, with the reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA
    request: str
    dataset: str
    rows_in: int
    rows_kept: int
    dropped: dict[str, int]
    flagged: dict[str, int]
    named: dict[str, list[str]] = Field(default_factory=dict)
    not_checked: dict[str, str] = Field(default_factory=dict)
    loss_tokens: int
    total_tokens: int
    finish_reasons: dict[str, int]
    heads: FileMark
    ids: FileMark
    model: dict[str, Any]
    prompts: dict[str, Any]
    journal: JournalMark
    servers: dict[str, int]
    described_servers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    samplings: list[dict[str, Any]]


def read_meta(folder: CampaignFolder, dataset: str) -> RecordsMeta | None:
    """The meta of a data set's records, or None where there are none, or of another schema."""
    try:
        meta = RecordsMeta.model_validate(read_json(folder.records_meta(dataset)))
    except ValidationError:
        return None
    return meta if meta.schema_version == SCHEMA else None


def is_whole(path: Path, meta: RecordsMeta) -> bool:
    """Whether the records at `path` are the ones that the meta describes."""
    return meta.heads.fits(path) and meta.ids.fits(ids_path(path))


@contextlib.contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at `path`; TemporaryError where another process does the same work."""
    lock = FileLock(path)
    if not lock.acquire(what):
        raise TemporaryError(f"{what}: another process is at it ({path} is locked); wait for it to end and try again")
    try:
        yield
    finally:
        lock.release()
