"""A tiny byte-level tokenizer with a Kimi-like chat template, made in a second, for tests of every room."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

BOS, EOS, END = "[BOS]", "[EOS]", "<|im_end|>"
SPECIAL = (
    BOS,
    EOS,
    "[PAD]",
    END,
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|endoftext|>",
)
REASONING = ("<think>", "</think>")
"""Added tokens that are not flagged as special, as in the published Kimi and Qwen tokenizers."""

TEMPLATE = """[BOS]
{%- if tools -%}
<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>
{%- endif -%}
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message['role'] == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message['role'] == 'assistant' -%}
<|im_assistant|>assistant<|im_middle|>
        {%- if loop.index0 > ns.last -%}
<think>{{ message.get('reasoning_content') or '' }}</think>
        {%- else -%}
<think></think>
        {%- endif -%}
{{ message['content'] or '' }}
        {%- if message.get('tool_calls') -%}
<|tool_calls_section_begin|>
            {%- for call in message['tool_calls'] -%}
<|tool_call_begin|>{{ call['id'] }}<|tool_call_argument_begin|>
                {%- if call['function']['arguments'] is string -%}
{{ call['function']['arguments'] }}
                {%- else -%}
{{ call['function']['arguments'] | tojson }}
                {%- endif -%}
<|tool_call_end|>
            {%- endfor -%}
<|tool_calls_section_end|>
        {%- endif -%}
    {%- elif message['role'] == 'tool' -%}
<|im_system|>tool<|im_middle|>## Return of {{ message.get('tool_call_id') }}
{{ message['content'] }}
    {%- else -%}
<|im_{{ message['role'] }}|>{{ message['role'] }}<|im_middle|>{{ message['content'] }}
    {%- endif -%}
<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_assistant|>assistant<|im_middle|>
    {%- if thinking is not defined or thinking -%}<think>{%- else -%}<think></think>{%- endif -%}
{%- endif -%}
"""

_TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then the dog asks the fox for a recipe of bread.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))",
    "Write a function that sorts a list of numbers and explain how it works, step by step.",
    "You are a helpful assistant. What is the capital of France? Paris is the capital of France.",
    '{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}',
)


@lru_cache(maxsize=1)
def make_tokenizer() -> Any:
    """The tokenizer, as transformers gives it: byte-level BPE, no unknown tokens, 600 entries or fewer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=560,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_TEXTS * 4, trainer)
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in REASONING])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=BOS, eos_token=END, pad_token="[PAD]")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save_model_folder(folder: Path, *, vocab_size: int | None = None, context_length: int = 2048) -> Path:
    """A folder that looks like a model to a tokenizer's user: tokenizer files, config.json, generation_config.json; no weights."""
    tokenizer = make_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    _name_the_class(folder / "tokenizer_config.json")
    config = {
        "model_type": "llama",
        "vocab_size": vocab_size or len(tokenizer),
        "max_position_embeddings": context_length,
        "eos_token_id": tokenizer.convert_tokens_to_ids(EOS),
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer.convert_tokens_to_ids(END)]}))
    return folder


def _name_the_class(path: Path) -> None:
    """Under the name that published models use and that every version of transformers knows."""
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
