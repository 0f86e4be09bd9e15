"""Later turns: the history is what the model itself said, as the template renders it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill.prompts.prepare import run
from draftmill.prompts.prompt import Prompt, read_prompts
from draftmill.prompts.turns import TurnRenderer, next_prompt
from tests.unit.prompts.conftest import MakeContext

THREE_TURNS = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "first question"},
    {"role": "assistant", "content": "RECORDED"},
    {"role": "user", "content": "second with <|im_end|> in it"},
    {"role": "assistant", "content": "RECORDED"},
    {"role": "user", "content": "third"},
]


@pytest.fixture
def start(tmp_path: Path, make_context: MakeContext) -> tuple[TurnRenderer, Prompt]:
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": THREE_TURNS}))
    ctx = make_context("chat.jsonl", turns="all")
    run(ctx)
    return TurnRenderer.of(ctx), next(read_prompts(ctx.folder.prompts("alpha")))


def ids(renderer: TurnRenderer, text: str) -> list[int]:
    return renderer.renderer.encode([text])[0]


def test_three_turns_of_the_models_own_history(start: tuple[TurnRenderer, Prompt]) -> None:
    renderer, first = start
    answers = ["hm one</think>answer one<|im_end|>", "hm two</think>\n\nanswer two<|im_end|>"]
    second = next_prompt(renderer, first, ids(renderer, answers[0]))
    assert second is not None
    third = next_prompt(renderer, second, ids(renderer, answers[1]))
    assert third is not None
    assert [first.turn, second.turn, third.turn] == [0, 1, 2]
    assert {first.conversation, second.conversation, third.conversation} == {first.id}
    assert len({first.id, second.id, third.id}) == 3
    messages = [
        *THREE_TURNS[:2],
        {"role": "assistant", "content": "answer one", "reasoning_content": "hm one"},
        THREE_TURNS[3],
        {"role": "assistant", "content": "answer two", "reasoning_content": "hm two"},
        THREE_TURNS[5],
    ]
    text = renderer.renderer.text(messages, None)
    assert renderer.renderer.decode(third.input_ids) == text
    assert "RECORDED" not in text
    assert "answer one" in text
    assert "answer two" in text
    end = renderer.renderer.encode(["<|im_end|>"])[0][0]
    assert third.input_ids.count(end) == 6, "one for each message, none for what the user spelled out"
    assert next_prompt(renderer, third, ids(renderer, answers[0])) is None, "nothing is left to ask"


def test_a_resumed_conversation_finds_the_same_ids(start: tuple[TurnRenderer, Prompt]) -> None:
    renderer, first = start
    answer, other = (ids(renderer, f"x</think>{text}<|im_end|>") for text in ("yes", "no"))
    again = Prompt(**json.loads(first.to_line()))
    made = [next_prompt(renderer, prompt, answer) for prompt in (first, again)]
    assert made[0] == made[1]
    different = next_prompt(renderer, first, other)
    assert different is not None
    assert made[0] is not None
    assert different.id != made[0].id, "another answer is another history"


@pytest.mark.parametrize("answer", ["no end", "only reasoning<|im_end|>", ""])
def test_an_unfinished_answer_ends_the_conversation(start: tuple[TurnRenderer, Prompt], answer: str) -> None:
    renderer, first = start
    assert next_prompt(renderer, first, ids(renderer, answer) if answer else []) is None


def test_without_reasoning_the_answer_is_the_content(start: tuple[TurnRenderer, Prompt]) -> None:
    renderer, first = start
    closed = [*first.input_ids, *ids(renderer, "</think>")]
    assert renderer.answer(closed, ids(renderer, "plain answer<|im_end|>")) == {"role": "assistant", "content": "plain answer"}


def test_a_tool_call_of_the_model_itself_stays_a_tool_call(start: tuple[TurnRenderer, Prompt]) -> None:
    renderer, first = start
    inner = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    call = f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"
    second = next_prompt(renderer, first, ids(renderer, f"x</think>{call}<|im_end|>"))
    assert second is not None
    assert renderer.renderer.encode(["<|tool_call_begin|>"])[0][0] in second.input_ids


def test_a_history_that_leaves_no_room_ends_the_conversation(tmp_path: Path, make_context: MakeContext) -> None:
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": THREE_TURNS}))
    ctx = make_context("chat.jsonl", turns="all", max_prompt_tokens=120)
    run(ctx)
    renderer, first = TurnRenderer.of(ctx), next(read_prompts(ctx.folder.prompts("alpha")))
    assert next_prompt(renderer, first, ids(renderer, "x</think>short<|im_end|>")) is not None
    assert next_prompt(renderer, first, ids(renderer, f"x</think>{'long ' * 50}<|im_end|>")) is None
