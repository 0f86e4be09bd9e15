"""Steps that stand in for the real ones inside a copy of draftmill: Airflow, SSH, delivery and jobs are real, only the work is not.

Copied to `draftmill/rehearsal.py` by rehearsal.py. A file `control/VERB.DATASET.json` (or `control/VERB.json`) in the workspace may tell
a step to do something else: `{"do": NAME, ...}` calls the function `do_NAME` below with the other keys.

What the steps keep in the campaign's folder lets a test see what happened: `DATASET.rows` (one line a row: number, pid), `events.log`
(one line for each thing done), `server.up` while the pretended server runs, `DATASET.two-writers` after a crime.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

from draftmill.errors import PermanentError, StoppedError, TemporaryError
from draftmill.jobs.step import StepContext

TOKENS_A_ROW = 10


def survey(ctx: StepContext) -> dict[str, Any]:
    entries = []
    for dataset in ctx.plan.datasets:
        tokens = _rows(ctx, dataset.name) * TOKENS_A_ROW
        left = max(0, dataset.budget_tokens - tokens)
        entries.append(
            {
                "name": dataset.name,
                "budget_tokens": dataset.budget_tokens,
                "on_disk_tokens": tokens,
                "responses": tokens // TOKENS_A_ROW,
                "left_tokens": left,
                "met": not left,
                "outcome": None if left else "budget_reached",
            }
        )
    return {"campaign": ctx.plan.campaign, "datasets": entries}


def preflight(ctx: StepContext) -> dict[str, Any]:
    return _told(ctx, "preflight") or {"ok": True}


def prepare(ctx: StepContext) -> dict[str, Any]:
    if told := _told(ctx, "prepare"):
        return told
    _event(ctx, f"prepare {ctx.dataset_name}")
    counts = {"prompts": 1000, "rows_read": 1000, "rows_used": 1000}
    return {"dataset": ctx.dataset_name, **counts, "skipped": {}, "reused": False, "path": str(ctx.folder.prompts(ctx.dataset.name))}


def launch(ctx: StepContext) -> dict[str, Any]:
    if told := _told(ctx, "launch"):
        return told
    if not any(entry["left_tokens"] for entry in survey(ctx)["datasets"]):
        _event(ctx, "launch not needed")
        return {"needed": False}
    _bring_up(ctx, "launch")
    return {"needed": True}


def generate(ctx: StepContext) -> dict[str, Any]:
    """Rows up to the budget, one after the other, from where the file ends. Two writers at once are a crime that is recorded."""
    if told := _told(ctx, "generate"):
        return told
    dataset = ctx.dataset
    target = dataset.budget_tokens // TOKENS_A_ROW
    path = ctx.folder.root / f"{dataset.name}.rows"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (ctx.folder.root / f"{dataset.name}.two-writers").touch()
            raise PermanentError(f"{dataset.name}: two writers") from None
        done = resumed = _rows(ctx, dataset.name)
        if done < target:
            _bring_up(ctx, f"generate {dataset.name}")
        while done < target:
            if ctx.stop.wait(dataset.expected_tokens / 1000):
                _event(ctx, f"stopped {dataset.name}")
                raise StoppedError("stopped in order")
            stream.write(f"{done} {os.getpid()}\n".encode())
            stream.flush()
            done += 1
            ctx.progress(f"{dataset.name}: {done} of {target} rows", done=done, tokens=done * TOKENS_A_ROW, tokens_per_s=100.0)
    new = done - resumed
    return {
        "dataset": dataset.name,
        "budget_tokens": dataset.budget_tokens,
        "completion_tokens": done * TOKENS_A_ROW,
        "prompt_tokens": done,
        "responses": done,
        "finish_reasons": {"stop": done},
        "outcome": "budget_reached",
        "resumed_tokens": resumed * TOKENS_A_ROW,
        "new_tokens": new * TOKENS_A_ROW,
        "new_responses": new,
        "seconds": 1.0,
        "tokens_per_s": new * 10.0,
        "path": str(path),
    }


def tokenize(ctx: StepContext) -> dict[str, Any]:
    if told := _told(ctx, "tokenize"):
        return told
    rows = _rows(ctx, ctx.dataset.name)
    return {
        "dataset": ctx.dataset_name,
        "rows_in": rows,
        "rows_kept": rows,
        "loss_tokens": rows * TOKENS_A_ROW,
        "total_tokens": rows * 11,
        "path": str(ctx.folder.records(ctx.dataset.name)),
    }


def merge(ctx: StepContext) -> dict[str, Any]:
    if told := _told(ctx, "merge"):
        return told
    rows = {name: _rows(ctx, name) for name in ctx.plan.names}
    manifest = ctx.folder.corpus / "manifest.json"
    reused = manifest.exists() and json.loads(manifest.read_text()) == rows
    if not reused:
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps(rows))
        _event(ctx, f"merge {' '.join(rows)}")
    return {
        "campaign": ctx.plan.campaign,
        "train": str(ctx.folder.corpus / "train.jsonl"),
        "manifest": str(manifest),
        "manifest_sha256": f"{sum(rows.values()):064d}",
        "rows": sum(rows.values()),
        "loss_tokens": sum(rows.values()) * TOKENS_A_ROW,
        "total_tokens": sum(rows.values()) * 11,
        "datasets": rows,
        "reused": reused,
    }


def stop_server(ctx: StepContext) -> dict[str, Any]:
    if told := _told(ctx, "stop-server"):
        return told
    _event(ctx, "stop-server")
    _server(ctx).unlink(missing_ok=True)
    return {"stopped": True}


def _told(ctx: StepContext, verb: str) -> dict[str, Any] | None:
    control = ctx.workspace.root / "control"
    path = control / (f"{verb}.{ctx.dataset_name}.json" if ctx.dataset_name else f"{verb}.json")
    if not path.exists():
        return None
    script = json.loads(path.read_text())
    result: dict[str, Any] | None = globals()[f"do_{script.pop('do')}"](ctx, **script)
    return result


def _rows(ctx: StepContext, name: str) -> int:
    path = ctx.folder.root / f"{name}.rows"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _event(ctx: StepContext, text: str) -> None:
    ctx.folder.root.mkdir(parents=True, exist_ok=True)
    with (ctx.folder.root / "events.log").open("a") as stream:
        stream.write(f"{text}\n")


def _server(ctx: StepContext) -> Path:
    return ctx.folder.root / "server.up"


def _bring_up(ctx: StepContext, by: str) -> None:
    if not _server(ctx).exists():
        _event(ctx, f"server up by {by}")
        _server(ctx).touch()


def do_fail(ctx: StepContext, how: str, times: int = 1_000_000) -> dict[str, Any] | None:
    """Fail so many times; then do the step."""
    path = ctx.folder.root / f"{ctx.dataset_name}.failures"
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = int(path.read_text()) if path.exists() else 0
    if failures >= times:
        return None
    path.write_text(str(failures + 1))
    kind = {"temporary": TemporaryError, "permanent": PermanentError}[how]
    raise kind(f"{ctx.dataset_name}: told to fail")


def do_nothing(ctx: StepContext) -> dict[str, Any]:
    return {"dataset": ctx.dataset_name}


def do_lines(ctx: StepContext, count: int) -> dict[str, Any]:
    for number in range(count):
        sys.stdout.write(f"line {number}\n")
    sys.stdout.flush()
    return {"dataset": ctx.dataset_name, "lines": count}


def do_noise(ctx: StepContext) -> dict[str, Any]:
    """Everything that a log can hold and that is no line of text."""
    out = sys.stdout.buffer
    out.write(b"before the noise\n")
    out.write(b"invalid \xff\xfe bytes\n")
    for step in range(2000):
        out.write(f"\r\u2588\u2588 {step} \u65e5\u672c\u8a9e".encode())
    out.write(b"\n" + b"x" * 2_000_000 + b"\n")
    out.write("after the noise \u2713".encode())
    out.flush()
    return {"dataset": ctx.dataset_name}


def do_sleep(ctx: StepContext, seconds: float) -> dict[str, Any]:
    """Say nothing at all, for a while."""
    if ctx.stop.wait(seconds):
        raise StoppedError("stopped in order")
    return {"dataset": ctx.dataset_name}


def do_stubborn(ctx: StepContext, seconds: float) -> dict[str, Any]:
    """Pay no attention to being told to stop."""
    import time

    time.sleep(seconds)
    return {"dataset": ctx.dataset_name}


def do_environment(ctx: StepContext, name: str, seconds: float = 0) -> dict[str, Any]:
    """Show that a secret has arrived by its length, and be careless with it in the log: at once, and again after `seconds`."""
    value = os.environ.get(name, "")
    for _ in range(2 if seconds else 1):
        sys.stdout.write(f"a careless library prints {name}={value}\n")
        sys.stdout.flush()
        ctx.progress(f"{name} is {value}")
        if ctx.stop.wait(seconds):
            raise StoppedError("stopped in order")
    return {"dataset": ctx.dataset_name, "length": len(value)}


def do_lines_slowly(ctx: StepContext, count: int, seconds: float) -> dict[str, Any]:
    for number in range(count):
        sys.stdout.write(f"line {number}\n")
        sys.stdout.flush()
        if ctx.stop.wait(seconds):
            raise StoppedError("stopped in order")
    return {"dataset": ctx.dataset_name}


def do_stall(ctx: StepContext, seconds: float) -> None:
    """Have requests in flight and no new token, for a while; then do the step."""
    ctx.progress("waiting for the server", tokens=1000, in_flight=3)
    if ctx.stop.wait(seconds):
        raise StoppedError("stopped in order")
