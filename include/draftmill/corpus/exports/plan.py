"""Which exports a corpus has, and where they lie in its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draftmill.corpus.exports.arrow import ArrowSink
from draftmill.corpus.exports.conversations import ConversationSink, Reader
from draftmill.corpus.exports.jsonl import JsonlSink, split_path
from draftmill.corpus.exports.sink import Sink
from draftmill.corpus.exports.vocabulary import VocabularySink
from draftmill.spec.policy import CorpusPolicy


class Exports:
    """The sinks of one merge.

    ```
    train.jsonl, held_out.jsonl       (or train/00000.jsonl.zst, ...) for SpecForge and speculators
    arrow/train/, arrow/held_out/     for speculators, prepared; with token_freq.pt, d2t-N.npy, t2d-N.npy inside arrow/train
    vocabulary/                       token_freq.pt, vocab_mapping.pt, d2t-N.npy, t2d-N.npy
    conversations/train.jsonl, ...    for people
    ```
    """

    def __init__(self, folder: Path, policy: CorpusPolicy, prompts: dict[str, Any], reader: Reader | None) -> None:
        self.folder = folder
        self.policy = policy
        self.reader = reader
        self.vocabulary = VocabularySink(folder / "vocabulary", policy.draft_vocab_size, prompts)
        self.has_held_out = False
        self.hashes: dict[Path, str] = {}

    def path(self, split: str) -> str:
        """The rows of a split as trainers read them, relative to the corpus folder: a file, or a folder of shards."""
        return split_path(self.folder, split, self.policy.shard_rows, self.policy.compress).name

    @contextlib.contextmanager
    def open(self, split: str) -> Iterator[list[Sink]]:
        """All exports of a split, written when the block ends well. The vocabulary is counted on training rows alone."""
        self.has_held_out |= split == "held_out"
        sinks: list[Sink] = [JsonlSink(self.folder, split, self.policy.shard_rows, self.policy.compress)]
        if "arrow" in self.policy.exports:
            sinks.append(ArrowSink(self.folder / "arrow" / split))
        if "conversations" in self.policy.exports and self.reader is not None:
            suffix = ".jsonl.zst" if self.policy.compress else ".jsonl"
            sinks.append(ConversationSink(self.folder / "conversations" / f"{split}{suffix}", self.reader))
        if split == "train":
            sinks.append(self.vocabulary)
        with contextlib.ExitStack() as stack:
            for sink in sinks:
                stack.enter_context(sink)
            yield sinks
        for sink in sinks:
            self.hashes.update(sink.hashes)

    def describe(self) -> dict[str, Any]:
        """What the manifest says about the exports beyond their files."""
        return {"vocabulary": self.vocabulary.describe()}
