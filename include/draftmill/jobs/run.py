"""`run-job FOLDER`: what a detached job's process does."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from draftmill.errors import ExitCode, PermanentError
from draftmill.files import write_json
from draftmill.jobs.detached import DetachedProcess
from draftmill.jobs.heartbeat import Heartbeat
from draftmill.jobs.identity import Identity
from draftmill.jobs.outcome import Outcome, conclude
from draftmill.jobs.progress import LogProgress, Tee
from draftmill.jobs.step import STEPS, ProgressSink, StepContext
from draftmill.layout import Workspace
from draftmill.spec.plan import Plan

_RESULT_TRIES = 10


def run_job(folder: Path) -> NoReturn:
    """Do the job of `folder` and end this process with its exit code. PermanentError where the folder is not this process's own."""
    process = DetachedProcess(folder)
    identity = process.identity()
    if identity is None or identity.pid != os.getpid():
        raise PermanentError(f"{folder} is not the folder of this process; start jobs with `job start`")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    log = LogProgress(sys.stderr)
    heartbeat = Heartbeat(process, identity, stop, log)
    log(f"attempt {identity.attempt} of {_title(identity)} starts as pid {identity.pid}")
    began = time.monotonic()
    outcome = conclude(lambda: _step(process, identity, Tee(log, heartbeat), stop), stop)
    heartbeat.close()
    _tell(log, outcome, time.monotonic() - began)
    if heartbeat.at_home:
        _write_result(process, identity, outcome)
    _end(outcome.exit_code)


def _title(identity: Identity) -> str:
    spec = identity.spec
    return "/".join(filter(None, (spec["campaign"], spec["task"], spec["dataset"])))


def _step(process: DetachedProcess, identity: Identity, progress: ProgressSink, stop: threading.Event) -> dict[str, Any]:
    spec = identity.spec
    plan = Plan.model_validate_json((process.folder / "plan.json").read_bytes())
    context = StepContext(plan, Workspace(Path(spec["workspace"])), progress, spec["dataset"], stop)
    context.check_stop()
    return STEPS[spec["task"]].load()(context)


def _tell(log: LogProgress, outcome: Outcome, seconds: float) -> None:
    if outcome.unexpected:
        with contextlib.suppress(OSError):
            sys.stderr.write(outcome.unexpected)
    if outcome.exit_code is ExitCode.DONE:
        log(f"done after {seconds:.0f} s")
    else:
        log(f"{outcome.exit_code.name.lower()} after {seconds:.0f} s: {outcome.error}")


def _write_result(process: DetachedProcess, identity: Identity, outcome: Outcome) -> None:
    """Write result.json. Where the disk stays too full even for that, the job shows as lost, and a retry resumes it."""
    result = {"attempt": identity.attempt, "exit_code": int(outcome.exit_code), "error": outcome.error, "result": outcome.result}
    for attempt in range(_RESULT_TRIES):
        with contextlib.suppress(OSError):
            write_json(process.result_path, result | {"finished_at": time.time()}, 0o600)
            return
        time.sleep(0.1 * attempt)


def _end(code: int) -> NoReturn:
    """End at once: a library's thread or exit handler must not keep a finished job alive."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
