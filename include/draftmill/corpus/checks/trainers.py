"""Runs the trainers' own loaders on a corpus, in processes of their own, and compares what they saw with the manifest."""

from __future__ import annotations

import contextlib
import pkgutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

import orjson

from draftmill.corpus.checks.read import split_files
from draftmill.errors import PermanentError, StoppedError

TRAINERS = ("specforge", "speculators")
_POLL_S = 0.5


def loader_request(folder: Path, manifest: dict[str, Any], scratch: Path, trainers: list[str]) -> dict[str, Any]:
    """What `checks.loaders` is told. Compressed shards are read by neither trainer, so only the Arrow form of such a corpus counts."""
    arrow = folder / "arrow" / "train"
    compressed = manifest["corpus"]["compress"]
    return {
        "trainers": [name for name in trainers if not compressed or (name == "speculators" and arrow.is_dir())],
        "jsonl": [] if compressed else [str(path) for path in split_files(folder, "train")],
        "arrow": str(arrow) if arrow.is_dir() else None,
        "longest_row": manifest["totals"]["longest_row"],
        "model_path": manifest["model"]["model_path"],
        "trust_remote_code": manifest["server"]["settings"]["trust_remote_code"],
        "scratch": str(scratch),
    }


def run_loaders(
    pythons: list[str], folder: Path, manifest: dict[str, Any], scratch: Path, stop: threading.Event
) -> dict[str, dict[str, Any]]:
    """The answer of each trainer, from the first of `pythons` that has it. `scratch`: a folder with room for a copy of the rows.

    Raises PermanentError where an interpreter cannot be run or dies, StoppedError where a stop was asked for.
    """
    answers: dict[str, dict[str, Any]] = {}
    for python in pythons:
        missing = [name for name in TRAINERS if "absent" in answers.get(name, {"absent": ""})]
        request = loader_request(folder, manifest, scratch, missing)
        if request["trainers"]:
            answers.update(_run(python, request, stop))
    for name in TRAINERS:
        answers.setdefault(name, {"absent": "its loader does not read compressed rows; merge with compress: false, or export arrow"})
    return answers


def _run(python: str, request: dict[str, Any], stop: threading.Event) -> dict[str, dict[str, Any]]:
    script = pkgutil.get_data("draftmill.corpus.checks", "loaders.py") or b""
    with contextlib.ExitStack() as stack:
        asked, answered, log = (stack.enter_context(tempfile.TemporaryFile(dir=request["scratch"])) for _ in range(3))
        asked.write(orjson.dumps(request))
        asked.seek(0)
        try:
            process = subprocess.Popen([python, "-c", script], stdin=asked, stdout=answered, stderr=log)
        except OSError as error:
            raise PermanentError(f"corpus.trainers_python: {python} cannot be run: {error.strerror}") from None
        _wait(process, stop)
        lines = _lines(answered)
        if process.returncode != 0 or not lines:
            last = (_lines(log) or [b""])[-1].decode(errors="replace")
            raise PermanentError(f"accept: the trainers' loaders died in {python} (exit {process.returncode}): {last}")
        answers: dict[str, dict[str, Any]] = orjson.loads(lines[-1])
        return answers


def _wait(process: subprocess.Popen[bytes], stop: threading.Event) -> None:
    while process.poll() is None:
        if stop.wait(_POLL_S):
            process.kill()
            process.wait()
            raise StoppedError("stopped on request while the trainers' loaders were running; accept again")


def _lines(stream: IO[bytes]) -> list[bytes]:
    stream.seek(0)
    return stream.read().splitlines()


def default_python() -> str:
    """The interpreter that runs draftmill: the one that serves the model."""
    return sys.executable


def faults(answers: dict[str, dict[str, Any]], manifest: dict[str, Any], required: bool) -> list[str]:
    """What speaks against the corpus: a loader that refused it or saw other numbers, and an absent one where all are required."""
    totals = manifest["totals"]
    expected = {"samples": totals["rows"], "tokens": totals["total_tokens"], "loss_tokens": totals["loss_tokens"]}
    found = []
    for name, answer in answers.items():
        if "error" in answer:
            found.append(f"{name}'s loader refuses the corpus: {answer['error']}")
        elif "absent" in answer:
            if required:
                found.append(f"{name}: {answer['absent']}, and corpus.acceptance is `required`")
        elif answer != expected:
            found.append(f"{name}'s loader saw {answer}, the manifest says {expected}")
    return found
