"""A model whose tokenizer is code of its own on top of tiktoken, as Kimi's is: loaded, guarded and rendered as any other."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.layout import Workspace
from draftmill.prompts.render import Renderer
from draftmill.prompts.tokenizer import LoadedTokenizer, load_tokenizer, tokenizer_request
from tests.plans import make_plan
from tests.tokenizers import TEMPLATE

pytest.importorskip("tiktoken", reason="tiktoken is not installed here; it is where such a model is served")

CODE = '''
"""A slow tokenizer around a tiktoken encoding."""
import base64

import tiktoken
from transformers import PreTrainedTokenizer


class TikTokenTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tiktoken.model"}

    def __init__(self, vocab_file, added_tokens_decoder=None, **kwargs):
        with open(vocab_file, "rb") as stream:
            ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in stream)}
        self.special_tokens = {token.content: number for number, token in added_tokens_decoder.items()}
        self.model = tiktoken.Encoding("own", pat_str=r"\\\\w+|[^\\\\w]", mergeable_ranks=ranks, special_tokens=self.special_tokens)
        self.names = [self.model.decode_single_token_bytes(number).decode("latin-1") for number in range(self.model.n_vocab)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        super().__init__(added_tokens_decoder=added_tokens_decoder, **kwargs)

    @property
    def vocab_size(self):
        return self.model.n_vocab

    def get_vocab(self):
        return dict(self.numbers)

    def encode(self, text, allow_special_tokens=True, **kwargs):
        if kwargs:
            return super().encode(text, **kwargs)
        return self.model.encode(text, allowed_special="all") if allow_special_tokens else self.model.encode(text, disallowed_special=())

    def _tokenize(self, text, **kwargs):
        return [self.names[number] for number in self.encode(text)]

    def _convert_token_to_id(self, token):
        return self.numbers.get(token)

    def _convert_id_to_token(self, index):
        return self.names[index]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens).encode("latin-1", "replace").decode("utf-8", "replace")
'''
CONTROL = [
    "[BOS]",
    "[EOS]",
    "[PAD]",
    "<|im_end|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<think>",
    "</think>",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kimi-like")
    words = [bytes([number]) for number in range(256)] + [b"us", b"user", b"er", b"as", b"Wh", b"at", b"What"]
    (folder / "tiktoken.model").write_bytes(b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(words)))
    (folder / "tokenization_own.py").write_text(CODE)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    added = {
        str(len(words) + place): {"content": token, "special": "think" not in token, "normalized": False, "lstrip": False, "rstrip": False}
        for place, token in enumerate(CONTROL)
    }
    config = {
        "added_tokens_decoder": added,
        "auto_map": {"AutoTokenizer": ["tokenization_own.TikTokenTokenizer", None]},
        "tokenizer_class": "TikTokenTokenizer",
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"text_config": {"vocab_size": len(words) + len(CONTROL)}}))
    return folder


def load(folder: Path, **profile: Any) -> LoadedTokenizer:
    values = {"model_path": str(folder), "trust_remote_code": True, "tokenizer_class": "TikTokenTokenizer"}
    plan = make_plan(profile=values | {"round_trip": ["<think>", "</think>"]} | profile)
    return load_tokenizer(tokenizer_request(plan.server.profile, Workspace(folder)))


def test_the_guard_lets_it_pass_and_wants_trust(folder: Path) -> None:
    loaded = load(folder)
    assert loaded.about["tokenizer_class"] == "TikTokenTokenizer"
    assert loaded.about["think_ids"] == {"<think>": loaded.vocab_size - 2, "</think>": loaded.vocab_size - 1}
    with pytest.raises(PermanentError, match="trust_remote_code"):
        load(folder, trust_remote_code=False)


def test_ids_are_those_of_the_template_and_spelled_out_tokens_are_text(folder: Path) -> None:
    loaded = load(folder)
    renderer = Renderer(loaded, "plain")
    messages = [{"role": "user", "content": "What is a user? 四"}]
    spelled = [{"role": "user", "content": "What <|im_end|> and </think> are"}]
    usual, special = renderer.render([(messages, None), (spelled, None)])
    apply = loaded.tokenizer.apply_chat_template
    assert usual.ids == list(apply(messages, add_generation_prompt=True, tokenize=True, return_dict=False))
    assert special.ids is not None
    control = loaded.tokenizer.special_tokens
    assert special.ids.count(control["<|im_end|>"]) == 1
    assert control["</think>"] not in special.ids
    assert loaded.tokenizer.model.decode(special.ids) == renderer.text(spelled, None)
