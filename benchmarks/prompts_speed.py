"""Speed and memory of preparation: a source of five million rows, and rendering beside the bare tokenizer.

    python -m benchmarks.prompts_speed [ROWS]

The source is synthetic, in the schema of OpenCodeInstruct, as Parquet in eight shards. `prompts.first_ready_s` is the time from the start
of the preparing process to the first prompt line on disk, and `prompts.peak_rss_mb` the largest sum of the resident memory of all its
processes; `prompts.cpu_s` is the processor time of all of them, which a busy machine does not change. `prompts.per_s_per_core` is what one
process renders in a second of processor time, from candidates to prompt lines; `prompts.tokenizer_ratio` compares it with calling the
tokenizer alone on the same rendered texts.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "include")]

ROWS = 5_000_000
SHARDS = 8
MAX_PROMPTS = 14_714
"""As the shipped campaign asks of OpenCodeInstruct."""
_TEXT = (
    "write a function that returns the sum of all even numbers in list and explain each step with an example input output "
    "sorted string array matrix graph tree node value key class method python java rust error test case return print loop "
    "while index given two integers find largest smallest common prefix suffix count unique characters reverse merge interval "
    "schedule queue stack "
)
_WORDS = _TEXT.split()


def make_source(folder: Path, rows: int) -> None:
    """Write `rows` different questions of 60 to 900 characters."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chance = np.random.default_rng(7)
    texts = pa.array([" ".join(chance.choice(_WORDS, chance.integers(10, 150))) for _ in range(50_000)])
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        count = rows // SHARDS
        numbers = pc.cast(pa.array(np.arange(shard * count, (shard + 1) * count)), pa.string())
        questions = pc.binary_join_element_wise("Task", numbers, texts.take(pa.array(chance.integers(0, len(texts), count))), " ")
        table = pa.table({"id": numbers, "input": questions, "output": pa.array(["pass"]).take(pa.array(np.zeros(count, int)))})
        pq.write_table(table, folder / f"train-{shard:05d}.parquet", row_group_size=100_000)


def make_model(folder: Path) -> None:
    """A byte-level tokenizer with 8,000 entries, trained on text like the source's, under the chat template of the tests."""
    from tests.tokenizers import BOS, END, REASONING, SPECIAL, TEMPLATE
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator([" ".join(_WORDS), *(f"{number} {number * 7919}" for number in range(3000))], trainer)
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, normalized=False) for text in REASONING])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=BOS, eos_token=END)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = {"vocab_size": len(tokenizer), "max_position_embeddings": 32_768}
    (folder / "config.json").write_text(json.dumps(config))


def make_context(root: Path) -> Any:
    """The step's context, as the job on the host has it."""
    from tests.plans import make_dataset, make_plan

    from draftmill.jobs.step import StepContext
    from draftmill.layout import Workspace

    dataset = make_dataset("bench", sources=[{"path": "source"}], adapter="opencodeinstruct", max_prompts=MAX_PROMPTS)
    return StepContext(make_plan(dataset), Workspace(root), lambda *_, **__: None, "bench")


def measure_preparation(root: Path) -> dict[str, float]:
    """Prepare in a process of its own; watch its output file and its memory from here."""
    import psutil

    prompts = make_context(root).folder.prompts("bench")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.prompts_speed", "--prepare", str(root)], cwd=ROOT)
    tree = psutil.Process(process.pid)
    first_ready, peak = 0.0, 0
    while process.poll() is None:
        if not first_ready and any(path.stat().st_size for path in prompts.parent.glob(".bench.jsonl.*.tmp")):
            first_ready = time.monotonic() - started
        peak = max(peak, _memory(tree))
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"prepare ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "prompts.cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "prompts.first_ready_s": round(first_ready, 2),
        "prompts.all_ready_s": round(time.monotonic() - started, 2),
        "prompts.peak_rss_mb": round(peak / 2**20, 1),
    }


def _memory(tree: Any) -> int:
    import psutil

    total = 0
    try:
        for process in (tree, *tree.children(recursive=True)):
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
    return total


def measure_rendering(root: Path, count: int = 12_000) -> dict[str, float]:
    """Render candidates in this process, and give the tokenizer alone the same rendered texts, in turn; medians of five."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from draftmill.prompts.canonical import encode_selection
    from draftmill.prompts.rendering import BATCH, RenderRequest, render_batch, renderer
    from draftmill.prompts.select import first_turn
    from draftmill.prompts.tokenizer import load_tokenizer, tokenizer_request
    from draftmill.sources.adapters import make_adapter
    from draftmill.sources.readers.parquet import read_parquet

    ctx = make_context(root)
    tokenizer = tokenizer_request(ctx.plan.server.profile, ctx.workspace)
    request = RenderRequest(tokenizer, "plain", "bench", None, None)
    adapter = make_adapter("opencodeinstruct")
    candidates = []
    for number, row in enumerate(read_parquet(str(root / "source/train-00000.parquet"), adapter.columns, 0, 1)):
        conversation = adapter.conversation(row)
        candidates.append((f"{number:032x}", encode_selection(first_turn(conversation.messages), None, None)[0]))
        if number == count:
            break
    made = renderer(tokenizer, "plain")
    texts = [made.text(json.loads(payload)[0], None) for _, payload in candidates]
    bare = load_tokenizer(tokenizer).tokenizer
    ours, theirs = [], []
    for _ in range(5):
        started = time.process_time()
        for at in range(0, len(candidates), BATCH):
            render_batch(request, candidates[at : at + BATCH])
        ours.append(len(candidates) / (time.process_time() - started))
        started = time.process_time()
        for at in range(0, len(texts), BATCH):
            bare(texts[at : at + BATCH], add_special_tokens=False)
        theirs.append(len(texts) / (time.process_time() - started))
    return {
        "prompts.per_s_per_core": round(statistics.median(ours), 1),
        "prompts.tokenizer_ratio": round(statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True)), 3),
    }


def run(rows: int = ROWS) -> dict[str, float]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="prompts-speed-") as name:
        root = Path(name)
        make_source(root / "source", rows)
        (root / "models").mkdir()
        make_model(root / "models/tiny")
        return measure_preparation(root) | measure_rendering(root)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prepare"]:
        from draftmill.prompts.prepare import run as prepare

        prepare(make_context(Path(sys.argv[2])))
    else:
        print(json.dumps(run(int(sys.argv[1]) if sys.argv[1:] else ROWS), indent=2))
