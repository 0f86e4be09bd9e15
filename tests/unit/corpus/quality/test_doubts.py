"""What is doubted, and what becomes of it."""

from __future__ import annotations

import pytest

from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.corpus.quality.doubts import Answer, Emptiness, OpenReasoning, Quality, is_truncated, standard_tests
from draftmill.spec.policy import QualityPolicy
from tests.unit.corpus.campaign import ASSISTANT, CLOSE, END, OPEN, USER, VOCABULARY
from tests.unit.corpus.test_record import make_row

META = PromptsMeta(
    sha256="p",
    vocab_size=VOCABULARY,
    tokenizer_hash="t",
    template_hash="c",
    eos_token_ids=[END],
    special_token_ids=[END, USER, ASSISTANT, OPEN, CLOSE],
    think_ids={"<think>": OPEN, "</think>": CLOSE},
)
ASKED = [40, 41, ASSISTANT, OPEN]


@pytest.mark.parametrize(
    ("prompt", "output", "open_at_end"),
    [
        (ASKED, [50, CLOSE, 51, END], False),
        (ASKED, [50, 51, 52], True),
        (ASKED, [50, CLOSE, 51, OPEN, 52], True),
        ([40, ASSISTANT], [OPEN, 50, CLOSE, 51, END], False),
        ([40, ASSISTANT], [OPEN, 50], True),
        ([40, ASSISTANT], [50, END], False),
        ([40, OPEN, 41, CLOSE, 42, ASSISTANT], [50, END], False),
    ],
)
def test_reasoning_is_open_where_the_last_tag_opens_it(prompt: list[int], output: list[int], open_at_end: bool) -> None:
    assert OpenReasoning(META)(Answer(make_row(prompt, output))) == open_at_end


def test_a_model_without_reasoning_never_leaves_it_open() -> None:
    assert not OpenReasoning(META.model_copy(update={"think_ids": {}}))(Answer(make_row(ASKED, [50])))


@pytest.mark.parametrize(
    ("output", "empty"),
    [([END], True), ([CLOSE, END], True), ([CLOSE] * 30, True), ([CLOSE] * 30 + [60], False), ([60, END], False)],
)
def test_an_answer_of_control_tokens_is_empty(output: list[int], empty: bool) -> None:
    assert Emptiness(META)(Answer(make_row(ASKED, output))) == empty


def test_truncation_is_the_finish_reason() -> None:
    assert is_truncated(Answer(make_row(ASKED, [50], finish_reason="length")))
    assert not is_truncated(Answer(make_row(ASKED, [50])))


def test_every_doubt_is_counted_and_only_the_policy_drops() -> None:
    quality = Quality(QualityPolicy(truncated="keep", unclosed_reasoning="drop"), standard_tests(META))
    cut_inside_reasoning = make_row(ASKED, [50, 51], finish_reason="length")
    assert quality.reason_to_drop(cut_inside_reasoning) == "unclosed_reasoning"
    assert quality.reason_to_drop(make_row(ASKED, [50, CLOSE, 51], finish_reason="length")) is None
    assert quality.reason_to_drop(make_row(ASKED, [50, CLOSE, 51, END])) is None
    assert quality.flagged == {"truncated": 2, "unclosed_reasoning": 1}


@pytest.mark.parametrize("name", sorted(standard_tests(META)))
def test_every_test_has_its_policy(name: str) -> None:
    assert name in QualityPolicy.model_fields
