"""Which exports a corpus has, and where they lie in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from draftmill.corpus.exports.arrow import ArrowSink
from draftmill.corpus.exports.jsonl import JsonlSink, split_path
from draftmill.corpus.exports.sink import Sink
from draftmill.corpus.exports.vocabulary import VocabularySink
from draftmill.corpus.request import MergeRequest
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

    def __init__(self, folder: Path, policy: CorpusPolicy, request: MergeRequest) -> None:
        self.folder = folder
        self.policy = policy
        self.vocabulary = VocabularySink(folder / "vocabulary", policy.draft_vocab_size, request.prompts)

    @property
    def train(self) -> str:
        """The training rows as trainers read them, relative to the corpus folder."""
        return split_path(self.folder, "train", self.policy.shard_rows, self.policy.compress).name

    def _sinks(self, split: str) -> list[Sink]:
        sinks: list[Sink] = [JsonlSink(self.folder, split, self.policy.shard_rows, self.policy.compress)]
        if "arrow" in self.policy.exports:
            sinks.append(ArrowSink(self.folder / "arrow" / split))
        return sinks

    def train_sinks(self) -> list[Sink]:
        """Everything that takes training rows. The vocabulary is counted on these alone."""
        return [*self._sinks("train"), self.vocabulary]

    def held_out_sinks(self) -> list[Sink]:
        """Everything that takes held-out rows."""
        return self._sinks("held_out")

    def describe(self) -> dict[str, Any]:
        """What the manifest says about the exports beyond their files."""
        return {"vocabulary": self.vocabulary.describe()}
