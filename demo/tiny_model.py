"""Makes the demo's model: a two-layer Llama with a real chat template, trained for a minute at most on the bundled samples.

    .venv-sglang/bin/python -m demo.tiny_model FOLDER

It talks nonsense, but in the right shape: it reasons, closes `</think>`, answers and ends its turn, at lengths that vary, so that some
answers end with `stop` and some are cut at `length`. The same samples and the same machine give the same model.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SAMPLES = HERE / "samples"
TEMPLATE = HERE / "chat_template.jinja"
MARKER = "made_from.json"

BOS, EOS, PAD, END_OF_TURN = "[BOS]", "[EOS]", "[PAD]", "<|im_end|>"
CONTROL_TOKENS = (
    *(BOS, EOS, PAD, END_OF_TURN, "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    *(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
)
REASONING_TOKENS = ("<think>", "</think>")

SEED = 7
VOCABULARY = 1024
CONTEXT = 2048
STEPS = 220
BATCH = 8
WINDOW = 192
MEAN_ANSWER = {"B4": 110, "B5": 110, "B8": 130}
"""Mean length, in tokens, of the answers trained on, by the sample file's first letters; their lengths spread widely around it."""
SHORT_ANSWER = 55
REASONING = (2, 12)
"""Shortest and longest part before </think>, in tokens: short, so that most answers get past it."""
SHAPE = 2.5
"""Shape of the gamma distribution that lengths are drawn from: right-skewed, as real answers are."""
QUESTION_SIGNS = 400
"""Questions are cut to this many characters in training, so that most of the time goes into answers."""

Turn = tuple[str, str]
Example = tuple[str, str, int]
"""Question, answer, mean length in tokens that answers of its kind shall have."""


def turns_of(row: dict[str, Any]) -> Iterator[Turn]:
    """Question and answer of a sample row, whatever its schema. Rows without both give nothing."""
    for ask, answer in (("input", "output"), ("problem", "solution"), ("instruction", "response")):
        if row.get(ask) and row.get(answer):
            yield row[ask], row[answer]
    if isinstance(row.get("chat"), str):
        found = re.search(r"USER: (.*?)\n\n\nASSISTANT: (.*?)<\|endoftext\|>", row["chat"], re.DOTALL)
        if found:
            yield found[1], found[2]
    conversation = row.get("messages") or row.get("conversations") or row.get("trajectory") or []
    contents = (turn.get("content") or turn.get("value") or turn.get("text") for turn in conversation if isinstance(turn, dict))
    spoken: list[str] = [text for text in contents if text]
    if len(spoken) > 1:
        yield spoken[0], spoken[1]


def read_examples() -> list[Example]:
    """All questions and answers of the bundled samples, without what UTF-8 cannot hold."""
    examples: list[Example] = []
    for path in sorted(SAMPLES.glob("*.jsonl")):
        mean = MEAN_ANSWER.get(path.name[:2], SHORT_ANSWER)
        for line in path.read_text(encoding="utf-8").splitlines():
            for question, answer in turns_of(json.loads(line)):
                examples.append((_encodable(question), _encodable(answer), mean))
    return examples


def _encodable(text: str) -> str:
    return text.encode(errors="ignore").decode()


def make_tokenizer(examples: list[Example]) -> Any:
    """A byte-level BPE tokenizer trained on the samples; every control token is one id."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(REASONING_TOKENS),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for example in examples for text in example[:2]), trainer)
    # Single tokens, but text and no control tokens, as in reasoning models: decoding keeps them.
    tokenizer.add_tokens(list(REASONING_TOKENS))
    make: Any = PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END_OF_TURN,
        pad_token=PAD,
        additional_special_tokens=[token for token in CONTROL_TOKENS if token not in (BOS, END_OF_TURN, PAD)],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    fast.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return fast


def training_ids(examples: list[Example], tokenizer: Any) -> list[int]:
    """One long stream of rendered conversations.

    Each answer runs on into others until a length drawn at random, and then ends its turn. So the model learns to end its answers,
    at lengths that it cannot know from the question.
    """
    chance = random.Random(SEED)
    close = tokenizer.convert_tokens_to_ids("</think>")
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    answers = [tokenizer.encode(re.sub(r"</?think>", "", answer), add_special_tokens=False) for _, answer, _ in examples]
    stream: list[int] = []
    for _ in range(2):
        for place in chance.sample(range(len(examples)), len(examples)):
            question, _, mean = examples[place]
            asked = [{"role": "user", "content": question[:QUESTION_SIGNS]}]
            stream += tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=True, return_dict=False)
            length = max(8, int(chance.gammavariate(SHAPE, mean / SHAPE)))
            body = list(answers[place])
            while len(body) < length:
                body += chance.choice(answers)
            cut = min(length - 1, chance.randint(*REASONING))
            stream += [*body[:cut], close, *body[cut:length], end]
    return stream


def train(stream: list[int], tokenizer: Any) -> Any:
    """A small Llama trained on the stream."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # One thread: matrices this small gain little from a second one, and two that wait for each other stand still on a busy machine.
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.convert_tokens_to_ids(BOS),
        eos_token_id=tokenizer.convert_tokens_to_ids(END_OF_TURN),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
    )
    model: Any = LlamaForCausalLM(config)
    data = torch.tensor(stream)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=STEPS)
    model.train()
    for step in range(STEPS):
        starts = torch.randint(0, len(data) - WINDOW, (BATCH,))
        batch = torch.stack([data[start : start + WINDOW] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"tiny model: step {step + 1} of {STEPS}, loss {loss.item():.2f}", flush=True)
    return model.eval().to(torch.bfloat16)


def digest() -> str:
    """What the model is made from: this file, the template and the samples."""
    total = hashlib.sha256()
    for path in (Path(__file__), TEMPLATE, *sorted(SAMPLES.glob("*.jsonl"))):
        total.update(path.read_bytes())
    return total.hexdigest()


def is_made(folder: Path) -> bool:
    """Whether the model in `folder` is whole and made from the present samples."""
    try:
        return bool(json.loads((folder / MARKER).read_text())["digest"] == digest())
    except (OSError, ValueError, KeyError):
        return False


def make(folder: Path) -> None:
    """Make the model, or keep the one that is there. It appears at `folder` whole or not at all."""
    if is_made(folder):
        print(f"tiny model: {folder} is up to date")
        return
    began = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    examples = read_examples()
    tokenizer = make_tokenizer(examples)
    model = train(training_ids(examples, tokenizer), tokenizer)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        whole = Path(temporary) / "model"
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        (whole / MARKER).write_text(json.dumps({"digest": digest(), "steps": STEPS, "seed": SEED}) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)
    print(f"tiny model: {sum(p.numel() for p in model.parameters()):,} parameters in {time.monotonic() - began:.0f} s -> {folder}")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
