"""What the trainers' own loaders see in a corpus. Runs as a script, by itself: a trainer's environment has no draftmill.

Reads a request as JSON from standard input, and writes one JSON line as the last line of standard output: for each trainer asked for,
`{"samples", "tokens", "loss_tokens"}`, `{"absent": why}` where it is not installed, or `{"error": what its loader said}`. Only calls that
the trainers make themselves before training: SpecForge 0.2 `prepare_prompt_tasks`; speculators 0.9 `load_and_preprocess_dataset` for
JSONL, and `ArrowDataset` for prepared data.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

Numbers = dict[str, Any]


def specforge(request: dict[str, Any]) -> Numbers:
    """Every JSONL file through the loader of `specforge train`."""
    prepare_prompt_tasks = importlib.import_module("specforge.data.prompt_builder").prepare_prompt_tasks
    samples = tokens = loss = 0
    for path in request["jsonl"]:
        tasks = prepare_prompt_tasks(
            path,
            None,
            chat_template=None,
            max_length=request["longest_row"],
            is_preformatted=False,
            train_only_last_turn=False,
            cache_dir=None,
            cache_key=None,
            num_proc=None,
            min_loss_tokens=1,
        )
        samples += len(tasks)
        for task in tasks:
            tokens += len(task["payload"]["input_ids"])
            loss += sum(task["payload"]["loss_mask"])
    return {"samples": samples, "tokens": tokens, "loss_tokens": loss}


def speculators(request: dict[str, Any]) -> Numbers:
    """The Arrow folder as `speculators train` opens it; without one, the JSONL files as `prepare-data` takes them first."""
    arrow_dataset = importlib.import_module("speculators.train.data").ArrowDataset
    with tempfile.TemporaryDirectory(dir=request["scratch"]) as scratch:
        folder = request["arrow"] or _prepare(request, scratch)
        dataset = arrow_dataset(max_len=request["longest_row"], datapath=folder, on_missing="skip")
        loss = sum(int(row["loss_mask"].sum()) for row in dataset.data)
        return {"samples": len(dataset), "tokens": sum(dataset.approx_lengths), "loss_tokens": loss}


def _prepare(request: dict[str, Any], scratch: str) -> str:
    import datasets

    datasets.config.HF_DATASETS_CACHE = scratch
    prepared, _ = importlib.import_module("speculators.data_generation.preprocessing").load_and_preprocess_dataset(
        target_model_path=request["model_path"],
        train_data_paths=request["jsonl"],
        seq_length=request["longest_row"],
        build_dataset_num_proc=None,
        trust_remote_code=request["trust_remote_code"],
    )
    prepared.save_to_disk(f"{scratch}/prepared")
    return f"{scratch}/prepared"


LOADERS: dict[str, Callable[[dict[str, Any]], Numbers]] = {"specforge": specforge, "speculators": speculators}


def check(name: str, request: dict[str, Any]) -> Numbers:
    """The answer for one trainer."""
    if importlib.util.find_spec(name) is None:
        return {"absent": f"{name} is not installed for {sys.executable}"}
    try:
        # Loaders talk on standard output, where the answer must stand alone.
        with contextlib.redirect_stdout(sys.stderr):
            return LOADERS[name](request)
    except Exception as error:  # noqa: BLE001 - whatever a trainer's code raises is its verdict
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}


def main() -> None:
    """Read the request, write the answers."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    request = json.load(sys.stdin)
    answers = {name: check(name, request) for name in request["trainers"]}
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
