"""User text that spells control tokens: never a control token, and never a difference anywhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.prompts.render import Renderer
from draftmill.prompts.special_text import SpecialText, control_tokens
from draftmill.prompts.tokenizer import LoadedTokenizer
from tests.tokenizers import REASONING, SPECIAL, TEMPLATE, make_tokenizer

CONTROL = (*SPECIAL, *REASONING)


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def controls(loaded: LoadedTokenizer, ids: list[int]) -> list[int]:
    known = set(control_tokens(loaded.tokenizer).values())
    return [number for number in ids if number in known]


@pytest.mark.parametrize("token", CONTROL)
@pytest.mark.parametrize("around", ["{}", "before {} after", "x{}y", "{}{}", "\n{}\n"])
def test_spelled_out_tokens_become_plain_text(loaded: LoadedTokenizer, token: str, around: str) -> None:
    renderer = Renderer(loaded, "plain")
    text = around.replace("{}", token)
    (result,) = renderer.render([(user(text), None)])
    (plain,) = renderer.render([(user("nothing special"), None)])
    assert result.special_text
    assert result.ids is not None
    assert plain.ids is not None
    assert controls(loaded, result.ids) == controls(loaded, plain.ids), "the template's own tokens and no others"
    assert loaded.tokenizer.decode(result.ids) == renderer.text(user(text), None), "nothing of the text is lost"


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["a", " ", "\n", "word", "é", "四", "<|", "|>", "<", "think>", "123", "  "]), min_size=1, max_size=12))
def test_the_way_for_special_text_gives_the_usual_ids_where_there_is_none(parts: list[str]) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    special = SpecialText(tokenizer)
    text = "".join(parts)
    rendered = tokenizer.apply_chat_template(user(text), tokenize=False, add_generation_prompt=True)
    usual = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert special.spelled_in(text) is any(token in text for token in CONTROL)
    if not special.spelled_in(text):
        assert special.encode(rendered) == usual


KINDS = ("byte-level", "metaspace-first", "metaspace-always", "unigram", "word-piece")
WORDS = ["the quick brown fox", "says hello to a friend", "end of the text", "im end think"] * 5


def of_kind(kind: str) -> Any:
    """A tokenizer of another make, whose control tokens are in its model's own vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", *SPECIAL]
    if kind == "unigram":
        backend = Tokenizer(models.Unigram())
        trainer: Any = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    elif kind == "word-piece":
        backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        trainer = trainers.WordPieceTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    else:
        backend = Tokenizer(models.BPE(unk_token="<unk>"))
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    if kind == "byte-level":
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    elif kind == "word-piece":
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    else:
        scheme = "always" if kind == "metaspace-always" else "first"
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(prepend_scheme=scheme), decoders.Metaspace(prepend_scheme=scheme)
    backend.train_from_iterator([*WORDS, "".join(map(chr, range(32, 127)))], trainer)
    backend.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", backend.token_to_id("[BOS]"))])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="[BOS]", eos_token="<|im_end|>", unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}<|im_user|>{{ m.content }}<|im_end|> [X] {{ m.content }}{% endfor %}"
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["the quick fox", " says  hello\n to", "a", "end of x.y!", "<|im_", "im_end|>"])
def test_tokenizers_of_every_make_agree_with_themselves(kind: str, text: str) -> None:
    tokenizer = of_kind(kind)
    special = SpecialText(tokenizer)
    rendered = tokenizer.apply_chat_template(user(text), tokenize=False)
    assert special.encode(rendered) == tokenizer(rendered, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("token", ["<|im_end|>", "[BOS]", "<|im_user|>"])
def test_tokenizers_of_every_make_spell_control_tokens_out(kind: str, token: str) -> None:
    tokenizer = of_kind(kind)
    special = SpecialText(tokenizer)
    known = set(control_tokens(tokenizer).values()) - {tokenizer.unk_token_id}
    rendered = tokenizer.apply_chat_template(special.shield(user(f"the {token} fox")), tokenize=False)
    ids = special.encode(rendered)
    assert [number for number in ids if number in known] == tokenizer.convert_tokens_to_ids(["<|im_user|>", "<|im_end|>"])


def test_special_text_in_tools_and_system_prompts(loaded: LoadedTokenizer) -> None:
    renderer = Renderer(loaded, "plain")
    tools = [{"type": "function", "function": {"name": "f", "description": "ends with <|im_end|>"}}]
    messages = [{"role": "system", "content": "Never write </think>."}, *user("q")]
    (result,) = renderer.render([(messages, tools)])
    assert result.ids is not None
    text = loaded.tokenizer.decode(result.ids)
    assert "ends with <|im_end|>" in text
    assert result.ids.count(loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")) == 3
    assert loaded.tokenizer.convert_tokens_to_ids("</think>") not in result.ids


def test_the_policy_to_skip(loaded: LoadedTokenizer) -> None:
    (result,) = Renderer(loaded, "skip").render([(user("a <|im_end|> b"), None)])
    assert result.ids is None
    assert result.reason == "special_token_text"
    assert result.special_text


def test_text_that_uses_the_stand_ins_is_skipped_only_beside_special_text(loaded: LoadedTokenizer) -> None:
    renderer = Renderer(loaded, "plain")
    private, both = renderer.render([(user("\U000f0001"), None), (user("\U000f0001 <|im_end|>"), None)])
    assert private.ids is not None
    assert both.reason == "private_use_characters"


def test_whitespace_tokens_are_text_and_no_control_tokens() -> None:
    from tokenizers import AddedToken

    tokenizer = make_tokenizer().__class__(tokenizer_object=make_tokenizer().backend_tokenizer, bos_token="[BOS]", eos_token="<|im_end|>")
    tokenizer.add_tokens([AddedToken("    ", normalized=False, special=False)])
    assert "    " not in control_tokens(tokenizer)
    assert "<think>" in control_tokens(tokenizer)


class Tiktoken:
    """Kimi's tokenizer as far as encoding goes: a real tiktoken encoding in `model`, and `encode(text, allow_special_tokens)`."""

    is_fast = False

    def __init__(self) -> None:
        tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed here")
        ranks = {bytes([number]): number for number in range(256)} | {b"th": 256, b"the": 257, b"im": 258}
        self.special_tokens = {"<|im_end|>": 300, "<think>": 301, "[BOS]": 302}
        self.model = tiktoken.Encoding("x", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens=self.special_tokens)
        self.added_tokens_decoder: dict[int, Any] = {}
        self.all_special_tokens: list[str] = []

    def encode(self, text: str, allow_special_tokens: bool = True) -> list[int]:
        return self.model.encode(text, allowed_special="all") if allow_special_tokens else self.model.encode(text, disallowed_special=())


def test_a_tiktoken_tokenizer_is_encoded_piece_by_piece() -> None:
    tokenizer = Tiktoken()
    special = SpecialText(tokenizer)
    rendered = "[BOS]the im<|im_end|>the<think>"
    assert special.encode(rendered) == tokenizer.encode(rendered)
    shielded = special.shield("the <|im_end|> im")
    assert special.encode(f"[BOS]{shielded}<|im_end|>") == [302, *tokenizer.encode("the <|im_end|> im", False), 300]
