"""The corpus for people: prompt, reasoning and answer as text. Not for training: encoding this again would give other tokens."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from draftmill.corpus.decoder import Decode
from draftmill.corpus.exports.file import ExportFile
from draftmill.corpus.record import Row


def split_answer(ids: list[int], think_ids: dict[str, int], reasoning_open: bool) -> tuple[list[int], list[int]]:
    """(reasoning, answer) of the generated ids, the tags left out.

    reasoning_open: the prompt had opened it. Without any tag all is answer; without the closing tag all after the opening is reasoning.
    """
    opening, closing = think_ids.get("<think>", -1), think_ids.get("</think>", -1)
    if ids and ids[0] == opening:
        ids, reasoning_open = ids[1:], True
    if closing in ids:
        end = ids.index(closing)
        return ids[:end], ids[end + 1 :]
    return (ids, []) if reasoning_open else ([], ids)


class Reader:
    """Makes rows readable."""

    def __init__(self, decode: Decode, prompts: dict[str, Any]) -> None:
        self.decode = decode
        self.think_ids: dict[str, int] = prompts["think_ids"]
        self.end_ids = set(prompts["eos_token_ids"])

    def read(self, row: Row) -> dict[str, Any]:
        """The row as text. The end token that closed the answer is left out; `finish_reason` says whether there was one."""
        sent, received = row.prompt_ids.tolist(), row.output_ids.tolist()
        if received[-1] in self.end_ids:
            received = received[:-1]
        reasoning, answer = split_answer(received, self.think_ids, self._is_open(sent))
        return {
            "id": row.head.id,
            "dataset": row.head.dataset,
            "conversation": row.head.conversation,
            "turn": row.head.turn,
            "prompt": self.decode(sent),
            "reasoning": self.decode(reasoning) if reasoning else None,
            "answer": self.decode(answer) if answer else "",
            "finish_reason": row.head.finish_reason,
        }

    def _is_open(self, sent: list[int]) -> bool:
        tags = [token for token in sent if token in self.think_ids.values()]
        return bool(tags) and tags[-1] == self.think_ids.get("<think>")


class ConversationSink:
    """Writes one split, compressed like the training rows."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self.reader = reader
        self.hashes: dict[Path, str] = {}
        self._file = ExportFile(path)

    def __enter__(self) -> ConversationSink:
        self._file.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)
        self.hashes[self._file.path] = self._file.sha256

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._file.write(orjson.dumps(self.reader.read(row), option=orjson.OPT_APPEND_NEWLINE))
