"""Prompts that were answered stay in the file, whatever has changed since: a response without its prompt could not be trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from draftmill.layout import CampaignFolder
from draftmill.prompts.prompt import order_key

_ID = re.compile(rb'\{"id":"([0-9a-f]{32})"')


@dataclass(frozen=True, slots=True, order=True)
class Kept:
    """A line of the old prompts file that goes on as it is."""

    key: str
    id: str
    offset: int
    size: int


class AnsweredPrompts:
    """The lines of the old prompts file whose prompts have a response, in the order of `seed`. Memory: about 200 bytes a line."""

    def __init__(self, folder: CampaignFolder, dataset: str, seed: int) -> None:
        self._path = folder.prompts(dataset)
        journal = folder.journal(dataset)
        self._kept = sorted(_kept(self._path, journal, seed)) if self._path.is_file() and journal.is_file() else []
        self._stream = self._path.open("rb") if self._kept else None

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept)

    def line(self, kept: Kept) -> bytes:
        """The prompt's line as it was sent."""
        assert self._stream is not None, "there is a stream where there are lines"
        self._stream.seek(kept.offset)
        return self._stream.read(kept.size)

    def close(self) -> None:
        """Let go of the old file."""
        if self._stream is not None:
            self._stream.close()


def _kept(prompts: Path, journal: Path, seed: int) -> Iterator[Kept]:
    from draftmill.generation.ids import IdIndex
    from draftmill.generation.journal import read_responses

    answered = IdIndex()
    for response in read_responses(journal):
        answered.add(response.id)
    offset = 0
    with prompts.open("rb") as stream:
        for line in stream:
            match = _ID.match(line)
            if match and (prompt_id := match[1].decode()) in answered:
                yield Kept(order_key(seed, prompt_id), prompt_id, offset, len(line))
            offset += len(line)
