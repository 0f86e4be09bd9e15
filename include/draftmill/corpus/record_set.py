"""The records of one data set: a JSONL file, and beside it what it was made from and what is in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.errors import TemporaryError
from draftmill.files import FileLock, read_json, sha256_file
from draftmill.layout import CampaignFolder

SCHEMA = 1
"""Of the records and their meta file. A higher number makes all records be built again."""


class RecordsMeta(BaseModel):
    """The file beside the records. rows_in = rows_kept + sum(dropped.values()).

    request: digest of everything the records depend on; the same request gives the same records.
    flagged: rows in doubt, by doubt, whether they were dropped or kept.
    named: ids of the first refused rows, by reason.
    model: what all rows of a corpus must have in common (tokenizer, template, vocabulary).
    servers, samplings: who answered, and with which parameters, with numbers of rows.
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
    sha256: str
    bytes: int
    model: dict[str, Any]
    prompts: dict[str, Any]
    journal: dict[str, Any]
    servers: dict[str, int]
    samplings: list[dict[str, Any]]


def read_meta(folder: CampaignFolder, dataset: str) -> RecordsMeta | None:
    """The meta of a data set's records, or None where there are none, or of another schema."""
    try:
        meta = RecordsMeta.model_validate(read_json(folder.records_meta(dataset)))
    except ValidationError:
        return None
    return meta if meta.schema_version == SCHEMA else None


def is_whole(path: Path, meta: RecordsMeta) -> bool:
    """Whether the records file is, byte for byte, the one that the meta describes."""
    return path.is_file() and path.stat().st_size == meta.bytes and sha256_file(path) == meta.sha256


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
