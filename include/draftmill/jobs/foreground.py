"""A step run by hand: in the foreground, on a terminal or into a log, with the same result and the same exit codes as a job."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from draftmill.errors import TemporaryError
from draftmill.files import FileLock
from draftmill.jobs.detached import DetachedProcess
from draftmill.jobs.outcome import Outcome, conclude
from draftmill.jobs.progress import LogProgress, TerminalProgress
from draftmill.jobs.secrets import read_secrets
from draftmill.jobs.step import STEPS, ProgressSink, StepContext
from draftmill.layout import Workspace
from draftmill.spec.plan import Plan


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or TERM asks for an end in order; a second one ends at once."""

    previous: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: object) -> None:
        stop.set()
        sys.stderr.write("draftmill: stopping in order; once more to end at once\n")
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _sole(workspace: Workspace, plan: Plan, verb: str, dataset: str | None) -> Iterator[None]:
    """Keep a detached job of the same key from starting meanwhile. TemporaryError where one is running."""
    process = DetachedProcess(workspace.campaign(plan.campaign).job(verb, dataset))
    life = FileLock(process.life_path)
    if not life.acquire(f"pid {os.getpid()}, run by hand"):
        holder = f"pid {process.pid}" if process.alive() else life.holder() or "another process"
        key = "/".join(filter(None, (plan.campaign, verb, dataset)))
        raise TemporaryError(f"{key} is being run by {holder} already; wait for it, or stop it with `job stop {key}`")
    try:
        yield
    finally:
        life.release()


@contextlib.contextmanager
def _progress(plan: Plan, verb: str, dataset: str | None) -> Iterator[ProgressSink]:
    if verb == "generate" and dataset and sys.stderr.isatty():
        bar = TerminalProgress(sys.stderr, dataset, plan.dataset(dataset).budget_tokens)
        with contextlib.closing(bar):
            yield bar
    else:
        yield LogProgress(sys.stderr)


def run_step(verb: str, plan: Plan, workspace: Workspace, dataset: str | None, stop: threading.Event) -> Outcome:
    """Run one step here and now. Stored secrets become part of the environment, where it has no value of its own."""
    for name, value in read_secrets(workspace).items():
        os.environ.setdefault(name, value)
    narrowed = plan.only(dataset, keep_earlier=STEPS[verb].chooses_prompts) if dataset else plan
    with _sole(workspace, plan, verb, dataset), _signals(stop), _progress(plan, verb, dataset) as progress:
        context = StepContext(narrowed, workspace, progress, dataset, stop)
        outcome = conclude(lambda: STEPS[verb].load()(context), stop)
    if outcome.unexpected:
        sys.stderr.write(outcome.unexpected)
    return outcome
