"""Speed and memory of the corpus: records, merge and exports beside a bare loop over the same rows, and the vocabulary mapping.

    python -m benchmarks corpus_speed
    python -m benchmarks.corpus_speed 8_000_000        with fewer tokens

The rows are synthetic: eight data sets, prompts of 50 to 2,000 tokens, heavy-tailed answers, ids of a vocabulary of 163,840. The bare
loop reads the merged rows and does `write(orjson.dumps(orjson.loads(line)))` with each. The corpus side starts from prompts and journals
and ends with a published corpus (JSONL, Arrow, token counts, draft-vocabulary mapping, manifest with the hash of every file); data sets
are tokenized two at a time, as a campaign does.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

DATASETS = 8
ROUNDS = 6
VOCABULARY = 163_840
DRAFT_VOCABULARY = 32_000


def _answer_length(chance: Any) -> int:
    return int(min(16_000, max(20, chance.lognormal(7.4, 0.9))))


def make_dataset(root: Path, dataset: str, tokens: int, seed: int) -> int:
    """Write prompts and a journal with about `tokens` tokens in all; returns the number of rows."""
    import numpy as np

    from draftmill.files import sha256_file, write_json
    from draftmill.generation.response import Response
    from draftmill.layout import Workspace
    from draftmill.prompts.prompt import Prompt, content_id, input_hash, order_key

    chance = np.random.default_rng([seed, len(dataset), *dataset.encode()])
    folder = Workspace(root).campaign("bench")
    prompts: list[Prompt] = []
    journal = folder.journal(dataset)
    journal.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with journal.open("wb") as stream:
        while total < tokens:
            identity = content_id(f"{dataset} {len(prompts)}".encode())
            sent = chance.integers(0, VOCABULARY, chance.integers(50, 2000)).tolist()
            received = (chance.zipf(1.2, _answer_length(chance)) % VOCABULARY).tolist()
            prompts.append(Prompt(identity, sent, dataset, identity))
            response = Response(
                id=identity,
                input_hash=input_hash(sent),
                output_ids=received,
                prompt_tokens=len(sent),
                completion_tokens=len(received),
                finish_reason="stop",
                rid=identity,
                server="bench",
                sampling={"temperature": 1.0, "max_new_tokens": 16384},
                started_at=0.0,
                finished_at=1.0,
                conversation=identity,
            )
            stream.write(response.to_line())
            total += len(sent) + len(received)
    path = folder.prompts(dataset)
    path.parent.mkdir(parents=True, exist_ok=True)
    prompts.sort(key=lambda prompt: order_key(seed, prompt.id))
    path.write_bytes(b"".join(prompt.to_line() for prompt in prompts))
    write_json(
        folder.prompts_meta(dataset),
        {
            "sha256": sha256_file(path),
            "vocab_size": VOCABULARY,
            "tokenizer_hash": "bench",
            "template_hash": "bench",
            "eos_token_ids": [VOCABULARY - 1],
            "special_token_ids": list(range(VOCABULARY - 256, VOCABULARY)),
            "think_ids": {"<think>": VOCABULARY - 10, "</think>": VOCABULARY - 9},
        },
    )
    return len(prompts)


def make_plan(names: list[str]) -> Any:
    """A plan of all data sets, with every export that needs no tokenizer."""
    from tests.plans import make_dataset as dataset_plan

    from draftmill.spec.plan import Plan

    return Plan.model_validate(
        {
            "campaign": "bench",
            "seed": 7,
            "server": {"name": "bench", "profile": {"device": "cpu", "model_path": "none"}},
            "sampling": {},
            "special_token_text": "plain",
            "datasets": [dataset_plan(name) for name in names],
            "datasets_at_once": 2,
            "quality": {},
            "corpus": {"draft_vocab_size": DRAFT_VOCABULARY, "exports": ["jsonl", "arrow"]},
        },
        strict=False,
    )


def step(root: Path, verb: str, names: list[str], dataset: str | None) -> dict[str, Any]:
    """Run one step in this process."""
    from draftmill.jobs.step import STEPS, StepContext
    from draftmill.layout import Workspace

    return STEPS[verb].load()(StepContext(make_plan(names), Workspace(root), lambda *_, **__: None, dataset))


class MemoryWatch(threading.Thread):
    """Peak of the resident memory of this process's children of now, summed over all of them."""

    def __init__(self) -> None:
        import psutil

        super().__init__(daemon=True)
        self.peak = 0
        self.done = threading.Event()
        # Found once: looking for children goes through all processes of the machine, and would cost a core what is measured here.
        self.children = psutil.Process().children(recursive=True)

    def run(self) -> None:
        while not self.done.wait(0.05):
            self.peak = max(self.peak, sum(child.memory_info().rss for child in self.children))


def bare_loop(source: Path, target: Path) -> float:
    """Seconds for reading, parsing, formatting and writing every line of `source`."""
    import orjson

    began = time.perf_counter()
    with source.open("rb") as read, target.open("wb") as write:
        for line in read:
            write.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))
    return time.perf_counter() - began


def mapping_seconds() -> float:
    """Seconds from token counts to the mapping of the whole vocabulary."""
    import numpy as np

    from draftmill.corpus.exports.vocabulary import draft_mapping

    counts = np.random.default_rng(1).zipf(1.2, VOCABULARY).astype(np.int64) % 1_000_000
    began = time.perf_counter()
    draft_mapping(counts, DRAFT_VOCABULARY, list(range(VOCABULARY - 256, VOCABULARY)))
    return time.perf_counter() - began


def measure(root: Path, names: list[str], pool: ProcessPoolExecutor) -> tuple[float, float, dict[str, Any]]:
    """One round from prompts and journals: seconds of records, seconds of merge and exports, and what the merge returned."""
    folder = root / "campaigns" / "bench"
    for made in ("records", "corpora", "corpus"):
        path = folder / made
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
    os.sync()  # writes of before must not be waited for
    began = time.perf_counter()
    list(pool.map(step, [root] * DATASETS, ["tokenize"] * DATASETS, [names] * DATASETS, names))
    tokenized = time.perf_counter()
    merged = pool.submit(step, root, "merge", names, None).result()
    return tokenized - began, time.perf_counter() - tokenized, merged


def run(tokens: int = 80_000_000) -> dict[str, float]:
    """The figures. read_write_ratio: speed of records + merge + exports over the speed of the bare loop; 1.0 is as fast as the loop.

    The two take turns, and the first round, in which memory is touched for the first time, is left out.
    """
    names = [f"set{number}" for number in range(DATASETS)]
    spawn = multiprocessing.get_context("spawn")
    ratios = []
    with tempfile.TemporaryDirectory(prefix="corpus-speed-") as name:
        root = Path(name)
        with ProcessPoolExecutor(2, spawn) as pool:
            list(pool.map(make_dataset, [root] * DATASETS, names, [tokens // DATASETS] * DATASETS, [7] * DATASETS))
        with ProcessPoolExecutor(2, spawn) as pool:
            list(pool.map(time.sleep, [0.5, 0.5]))  # both interpreters are up before the clock starts
            watch = MemoryWatch()
            watch.start()
            for _ in range(ROUNDS):
                records, merge, merged = measure(root, names, pool)
                os.sync()
                bare = bare_loop(Path(merged["train"]), root / "bare.jsonl")
                (root / "bare.jsonl").unlink()
                ratios.append(bare / (records + merge))
                print(
                    f"{merged['total_tokens']:,} tokens in {merged['rows']:,} rows: records {records:.2f} s, "
                    f"merge and exports {merge:.2f} s, bare loop {bare:.2f} s: {ratios[-1]:.3f}",
                    flush=True,
                )
            watch.done.set()
            watch.join()
    return {
        "corpus.peak_rss_mb": round(watch.peak / 1e6, 1),
        "corpus.read_write_ratio": round(statistics.median(ratios[1:]), 3),
        "corpus.vocab_mapping_s": round(mapping_seconds(), 4),
    }


if __name__ == "__main__":
    print(run(int(sys.argv[1].replace("_", ""))) if len(sys.argv) > 1 else run())
