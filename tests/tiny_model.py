"""A model small enough to serve on a CPU: a two-layer Llama with vocabulary 1024 and context 2048, random weights.

`build(python, folder)` runs this file with a Python that has torch, transformers and tokenizers (the one that serves).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if thinking is defined and thinking %}<think>{% endif %}{% endif %}"
)
SPECIAL = ["<|bos|>", "<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
VOCABULARY = 1024


def build(python: str, folder: Path) -> Path:
    """Make the model at `folder` unless it is there; returns `folder`.

    Isolated (-I), because this folder holds a module that is called tokenizers, too.
    """
    if not (folder / "config.json").exists():
        subprocess.run([python, "-I", __file__, str(folder)], check=True, capture_output=True, text=True, timeout=240)
    return folder


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False)
    text = Path(__file__).read_text()
    tokenizer.train_from_iterator([text, *(f"number {n} of the {n * n} words" for n in range(2000))], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|end|>", pad_token="<|pad|>")
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def _model(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    _tokenizer(target)
    _model(target)  # last: its config.json marks the folder as complete
