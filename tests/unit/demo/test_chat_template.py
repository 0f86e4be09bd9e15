"""The tiny model's chat template and tokenizer, made from the bundled samples without training a model."""

from __future__ import annotations

from typing import Any

import pytest
from demo.tiny_model import MEAN_ANSWER, make_tokenizer, read_examples, training_ids

USER = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(read_examples())


def rendered(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    return text


def test_the_generation_prompt_opens_the_reasoning(tokenizer: Any) -> None:
    expected = "[BOS]<|im_user|>user<|im_middle|>Hello<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    assert rendered(tokenizer, [USER], add_generation_prompt=True) == expected
    assert rendered(tokenizer, [USER], add_generation_prompt=True, thinking=True) == expected


def test_without_thinking_the_reasoning_is_closed_at_once(tokenizer: Any) -> None:
    assert rendered(tokenizer, [USER], add_generation_prompt=True, thinking=False).endswith("<|im_middle|><think></think>")


def test_tools_calls_and_their_results_are_shown(tokenizer: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "roll", "arguments": {"sides": 6}}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    text = rendered(tokenizer, messages, tools=[{"type": "function", "function": {"name": "roll"}}])
    assert text.startswith('[BOS]<|im_system|>tool_declare<|im_middle|>[{"type": "function", "function": {"name": "roll"}}]<|im_end|>')
    assert '<|tool_call_begin|>c1<|tool_call_argument_begin|>{"sides": 6}<|tool_call_end|>' in text
    assert text.endswith("<|im_system|>tool<|im_middle|>## Return of c1\n4<|im_end|>")


def test_content_may_be_a_list_of_parts(tokenizer: Any) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "Hel"}, "lo", {"type": "image", "image": "x"}]}
    assert rendered(tokenizer, [parts]) == rendered(tokenizer, [USER])


@pytest.mark.parametrize("token", ["<think>", "</think>", "<|im_end|>", "[BOS]"])
def test_control_tokens_are_one_id_each(tokenizer: Any, token: str) -> None:
    ids = tokenizer.encode(token, add_special_tokens=False)
    assert len(ids) == 1
    assert tokenizer.decode(ids) == token


def test_any_text_comes_back(tokenizer: Any) -> None:
    text = "naïve 日本 \u2028 \x00 👩\u200d💻"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_trained_answers_close_their_reasoning_and_end_at_many_lengths(tokenizer: Any) -> None:
    stream = training_ids(read_examples(), tokenizer)
    close, end, middle = (tokenizer.convert_tokens_to_ids(token) for token in ("</think>", "<|im_end|>", "<think>"))
    answers, place = [], 0
    while middle in stream[place:]:
        start = stream.index(middle, place) + 1
        place = stream.index(end, start)
        answers.append(stream[start:place])
        if len(answers) == 300:
            break
    assert all(answer.count(close) == 1 for answer in answers)
    lengths = sorted(map(len, answers))
    assert lengths[30] < 30
    assert lengths[-30] > max(MEAN_ANSWER.values())
