"""Rows as text for people, reasoning apart."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from draftmill.corpus.exports.conversations import ConversationSink, Reader, split_answer
from tests.unit.corpus.campaign import ASSISTANT, CLOSE, END, OPEN, TOKENIZER, USER
from tests.unit.corpus.test_record import make_row

PROMPTS = {"think_ids": {"<think>": OPEN, "</think>": CLOSE}, "eos_token_ids": [END]}


def encode(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


@pytest.fixture
def reader() -> Reader:
    return Reader(lambda ids: TOKENIZER.decode(ids, skip_special_tokens=False), PROMPTS)


@pytest.mark.parametrize(
    ("ids", "prompt_opened", "expected"),
    [
        ([1, 2, CLOSE, 3], True, ([1, 2], [3])),
        ([OPEN, 1, CLOSE, 3], False, ([1], [3])),
        ([1, 2], True, ([1, 2], [])),
        ([1, 2], False, ([], [1, 2])),
        ([CLOSE, 3], True, ([], [3])),
        ([1, CLOSE, 2, CLOSE, 3], True, ([1], [2, CLOSE, 3])),
        ([], True, ([], [])),
    ],
)
def test_reasoning_and_answer_are_told_apart(ids: list[int], prompt_opened: bool, expected: tuple) -> None:
    assert split_answer(ids, PROMPTS["think_ids"], prompt_opened) == expected


def test_a_row_reads_as_it_was_said(reader: Reader) -> None:
    sent = [USER, *encode("Add 1 and 2."), END, ASSISTANT, OPEN]
    told = reader.read(make_row(sent, [*encode("Easy: 3 🙂"), CLOSE, *encode("It is 3."), END]))
    assert told["prompt"] == "<|im_user|>Add 1 and 2.<|im_end|><|im_assistant|><think>"
    assert told["reasoning"] == "Easy: 3 🙂"
    assert told["answer"] == "It is 3."
    assert told["finish_reason"] == "stop"


def test_a_cut_row_keeps_what_there_is(reader: Reader) -> None:
    told = reader.read(make_row([USER, ASSISTANT, OPEN], encode("still thinking"), finish_reason="length"))
    assert (told["reasoning"], told["answer"], told["finish_reason"]) == ("still thinking", "", "length")
    told = reader.read(make_row([USER, ASSISTANT], encode("no tags at all")))
    assert (told["reasoning"], told["answer"]) == (None, "no tags at all")
    assert reader.read(make_row([USER], [END]))["answer"] == ""


def test_one_line_a_row(tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "conversations/train.jsonl"
    with ConversationSink(path, reader) as sink:
        for number in range(3):
            sink.add(make_row([USER], encode(f"line\n{number}"), turn=number))
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [(row["turn"], row["answer"]) for row in rows] == [(number, f"line\n{number}") for number in range(3)]
    assert "conversations" not in rows[0], "a trainer must not take this for training data"
