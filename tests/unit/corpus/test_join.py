"""Training ids are what was sent and what came back; anything that does not fit together is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from draftmill.corpus.join import Refused, join
from draftmill.corpus.prompt_index import PromptIndex
from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.generation.response import Response
from draftmill.prompts.prompt import Prompt, content_id, input_hash
from tests.unit.corpus.campaign import ASSISTANT, CLOSE, END, OPEN, VOCABULARY, answer, make_prompts, with_ids

META = PromptsMeta(sha256="p", vocab_size=VOCABULARY, tokenizer_hash="t", template_hash="c")
PROMPTS = make_prompts("alpha", 20)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PromptIndex]:
    path = tmp_path / "alpha.jsonl"
    path.write_bytes(b"".join(prompt.to_line() for prompt in PROMPTS))
    with PromptIndex(path, 7) as index:
        yield index


def reason(response: Response, index: PromptIndex) -> str:
    with pytest.raises(Refused) as refused:
        join(response, index, META, "alpha")
    return refused.value.reason


def test_ids_are_those_sent_and_received(index: PromptIndex) -> None:
    prompt = PROMPTS[4]
    output = [CLOSE, OPEN, ASSISTANT, VOCABULARY - 1, 0, END, END]
    row = join(answer(prompt, output), index, META, "alpha")
    assert row.ids.tolist() == prompt.input_ids + output
    assert row.prompt_ids.tolist() == prompt.input_ids
    assert row.output_ids.tolist() == output
    assert (row.head.id, row.head.dataset, row.head.conversation, row.head.turn) == (prompt.id, "alpha", prompt.conversation, 0)


def test_a_later_turn_brings_its_own_ids(index: PromptIndex) -> None:
    first = PROMPTS[0]
    second = Prompt(content_id(b"turn 1"), first.input_ids, "alpha", first.conversation, turn=1)
    sent = [*first.input_ids, 50, 51, END, ASSISTANT]
    row = join(with_ids(answer(second, [70, 71, END]), sent, 1), index, META, "alpha")
    assert row.ids.tolist() == [*sent, 70, 71, END]
    assert (row.head.turn, row.head.conversation, row.head.prompt_tokens) == (1, first.conversation, len(sent))


def test_a_prompt_that_is_gone_is_refused(index: PromptIndex) -> None:
    assert reason(replace(answer(PROMPTS[0]), id=content_id(b"gone")), index) == "prompt_missing"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input_hash": input_hash([1, 2])}, "other_prompt"),
        ({"input_hash": ""}, "no_input_hash"),
        ({"completion_tokens": 3}, "inconsistent"),
        ({"finish_reason": "abort"}, "inconsistent"),
        ({"output_ids": [], "completion_tokens": 9}, "no_output_ids"),
        ({"output_ids": [5, VOCABULARY], "completion_tokens": 2}, "outside_vocabulary"),
        ({"output_ids": [-1], "completion_tokens": 1}, "outside_vocabulary"),
        ({"output_ids": [2**40], "completion_tokens": 1}, "outside_vocabulary"),
    ],
)
def test_what_does_not_fit_together_is_refused(index: PromptIndex, changes: dict, expected: str) -> None:
    assert reason(replace(answer(PROMPTS[2], [9, 9, 9, 9]), **changes), index) == expected


def test_the_ids_of_a_later_turn_are_checked_like_any(index: PromptIndex) -> None:
    response = with_ids(answer(PROMPTS[0], [8, END]), [3, 4, 5], 1)
    assert reason(replace(response, input_ids=[3, 4, 6]), index) == "other_prompt"
