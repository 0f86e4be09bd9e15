"""Prompts are found by id, and no more of their file is read than that needs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from draftmill.corpus.prompt_index import PromptIndex
from draftmill.errors import PermanentError
from draftmill.prompts.prompt import Prompt, content_id
from tests.unit.corpus.campaign import make_prompts

SEED = 7


def write(path: Path, prompts: list[Prompt]) -> Path:
    path.write_bytes(b"".join(prompt.to_line() for prompt in prompts))
    return path


def found(index: PromptIndex, prompt_id: str) -> list[int]:
    ids = index.find(prompt_id)
    assert ids is not None
    return list(ids)


def test_every_prompt_is_found_in_any_order(tmp_path: Path) -> None:
    prompts = make_prompts("alpha", 200, SEED)
    path = write(tmp_path / "alpha.jsonl", prompts)
    asked = prompts.copy()
    random.Random(1).shuffle(asked)
    with PromptIndex(path, SEED) as index:
        assert [found(index, prompt.id) for prompt in asked] == [prompt.input_ids for prompt in asked]


def test_an_unknown_id_is_none_wherever_it_would_stand(tmp_path: Path) -> None:
    path = write(tmp_path / "alpha.jsonl", make_prompts("alpha", 50, SEED))
    with PromptIndex(path, SEED) as index:
        assert [index.find(content_id(bytes([number]))) for number in range(100)] == [None] * 100


def test_only_the_head_of_the_file_is_read(tmp_path: Path) -> None:
    prompts = make_prompts("alpha", 300, SEED)
    path = write(tmp_path / "alpha.jsonl", prompts)
    whole = path.read_bytes()
    head = sum(len(prompt.to_line()) for prompt in prompts[:101])
    path.write_bytes(whole[:head] + b"\xff" * (len(whole) - head))
    with PromptIndex(path, SEED) as index:
        assert [found(index, prompt.id) for prompt in reversed(prompts[:100])] == [prompt.input_ids for prompt in prompts[99::-1]]


def test_lines_whose_id_does_not_come_first_are_read_too(tmp_path: Path) -> None:
    prompts = make_prompts("alpha", 5, SEED)
    path = tmp_path / "alpha.jsonl"
    path.write_bytes(
        b"".join(json.dumps({"turn": 0, "input_ids": prompt.input_ids, "id": prompt.id}).encode() + b"\n" for prompt in prompts)
    )
    with PromptIndex(path, SEED) as index:
        assert found(index, prompts[3].id) == prompts[3].input_ids


def test_another_order_is_refused(tmp_path: Path) -> None:
    prompts = make_prompts("alpha", 20, SEED)
    path = write(tmp_path / "alpha.jsonl", prompts)
    with PromptIndex(path, SEED + 1) as index, pytest.raises(PermanentError, match=r"out of work order for seed 8; prepare"):
        [index.find(prompt.id) for prompt in prompts]


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="no such file; prepare the data set again"):
        PromptIndex(tmp_path / "none.jsonl", SEED)
