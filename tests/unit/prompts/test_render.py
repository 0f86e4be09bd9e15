"""Prompt ids are those of the chat template, whatever the shortcut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.prompts.render import Renderer
from draftmill.prompts.tokenizer import LoadedTokenizer
from tests.tokenizers import BOS, TEMPLATE

CONVERSATIONS: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = [
    ([{"role": "user", "content": "What is 2 + 2?"}], None),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 四 🙂\n\n  x"}], None),
    ([{"role": "user", "content": "q"}], [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [2]}}}]),
    (
        [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
            },
            {"role": "tool", "content": "r", "tool_call_id": "functions.f:0"},
        ],
        None,
    ),
]


@pytest.fixture
def changed(loaded: LoadedTokenizer) -> Any:
    """A loaded tokenizer under another template."""

    def change(template: str) -> LoadedTokenizer:
        loaded.tokenizer.chat_template = template
        return loaded

    return change


@pytest.mark.parametrize("kwargs", [{}, {"thinking": True}, {"thinking": False}])
def test_ids_are_those_of_the_template(loaded: LoadedTokenizer, kwargs: dict[str, Any]) -> None:
    results = Renderer(replace(loaded, template_kwargs=kwargs), "plain").render(CONVERSATIONS)
    for (messages, tools), result in zip(CONVERSATIONS, results, strict=True):
        expected = loaded.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False, **kwargs)
        assert result.ids == list(expected)


def test_one_bos_and_one_generation_prompt(loaded: LoadedTokenizer) -> None:
    for result in Renderer(loaded, "plain").render(CONVERSATIONS):
        assert result.ids is not None
        assert result.ids.count(loaded.tokenizer.bos_token_id) == 1
        assert loaded.tokenizer.decode(result.ids).endswith("<|im_assistant|>assistant<|im_middle|><think>")
        assert result.ids[-1] == loaded.tokenizer.convert_tokens_to_ids("<think>")


def test_padding_and_truncation_of_the_tokenizers_file_are_not_used(loaded: LoadedTokenizer) -> None:
    loaded.tokenizer.backend_tokenizer.enable_truncation(4)
    loaded.tokenizer.backend_tokenizer.enable_padding(length=64)
    (result,) = Renderer(loaded, "plain").render(CONVERSATIONS[:1])
    assert result.ids is not None
    assert 4 < len(result.ids) < 64


def test_what_a_template_refuses_is_skipped_and_the_others_are_rendered(changed: Any) -> None:
    strict = TEMPLATE.replace(
        "{%- if tools -%}", "{%- if messages[0].role == 'system' -%}{{ raise_exception('no') }}{%- endif -%}{%- if tools -%}", 1
    )
    results = Renderer(changed(strict), "plain").render(CONVERSATIONS)
    assert [result.reason for result in results] == [None, "template_refused", None, None]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (TEMPLATE.replace("{%- if add_generation_prompt -%}", "{%- if add_generation_prompt and false -%}"), "adds no generation prompt"),
        (BOS + TEMPLATE, "begins with two"),
    ],
)
def test_a_template_that_gives_no_usable_prompt_is_refused(changed: Any, template: str, words: str) -> None:
    with pytest.raises(PermanentError, match=words):
        Renderer(changed(template), "plain")


def test_a_template_without_a_generation_prompt_of_its_own(changed: Any) -> None:
    mistral = "[BOS]{% for m in messages %}{{ ' [INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content }}{% endfor %}"
    (result,) = Renderer(changed(mistral), "plain").render([([{"role": "user", "content": "q"}], None)])
    assert result.ids is not None


def test_a_template_whose_tokens_differ_from_its_text_is_refused(loaded: LoadedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = loaded.tokenizer.apply_chat_template

    def other(*args: Any, tokenize: bool = True, **kwargs: Any) -> Any:
        made = apply(*args, tokenize=tokenize, **kwargs)
        return [*made[:1], 5, *made[1:]] if tokenize else made

    monkeypatch.setattr(loaded.tokenizer, "apply_chat_template", other)
    with pytest.raises(PermanentError, match="other ids as tokens than as text"):
        Renderer(loaded, "plain")


def test_ids_that_the_model_does_not_have(loaded: LoadedTokenizer) -> None:
    highest = loaded.tokenizer.convert_tokens_to_ids("</think>")
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "q2"}]
    with pytest.raises(PermanentError, match="makes id"):
        Renderer(replace(loaded, vocab_size=highest - 5), "plain").render([(messages, None)])
