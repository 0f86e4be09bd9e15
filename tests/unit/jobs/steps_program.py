"""draftmill's command line with a few steps of our own: what a detached job runs in these tests.

What a step is to do is written in its plan's `description`, the one field of a plan that is free text.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "include"))

from draftmill.errors import PermanentError, TemporaryError
from draftmill.jobs.step import STEPS, StepContext, StepEntry

TEST_STEPS = {
    "nap": StepEntry("steps_program:nap", True, "sleeps until it is stopped"),
    "quick": StepEntry("steps_program:quick", False, "returns what it was given"),
    "fail": StepEntry("steps_program:fail", False, "fails as described"),
    "talk": StepEntry("steps_program:talk", False, "prints what a file holds"),
    "cling": StepEntry("steps_program:cling", False, "ignores TERM, as do its children"),
    "generate": StepEntry("steps_program:count", True, "reports tokens"),
}
TITLE_CLEARED = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
DEAF = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"


def nap(ctx: StepContext) -> dict[str, Any]:
    ctx.progress("sleeping", done=0)
    ctx.stop.wait()
    ctx.check_stop()
    return {}


def quick(ctx: StepContext) -> dict[str, Any]:
    print("a stray print")
    ctx.progress("quick work")
    return {"description": ctx.plan.description, "token": os.environ.get("TEST_TOKEN"), "argv": sys.argv[1:]}


def fail(ctx: StepContext) -> dict[str, Any]:
    kind = ctx.plan.description
    if kind == "validation":
        ctx.plan.model_validate({"campaign": 5})
    if kind == "import":
        import no_such_module  # noqa: F401
    if kind == "result":
        return {"not": object()}
    errors: dict[str, BaseException] = {
        "permanent": PermanentError("the model is missing;\n give its path"),
        "temporary": TemporaryError("the port is busy"),
        "unexpected": ZeroDivisionError("a division"),
        "memory": MemoryError(),
        "disk": OSError(errno.ENOSPC, "No space left on device", "/data/file"),
        "exit": SystemExit(3),
    }
    raise errors[kind]


def talk(ctx: StepContext) -> dict[str, Any]:
    with Path(ctx.plan.description).open("rb") as stream:
        while block := stream.read(1 << 16):
            sys.stdout.buffer.write(block)
    sys.stdout.flush()
    return {}


def cling(ctx: StepContext) -> dict[str, Any]:
    """A leader that ignores TERM, and children that do: in its session without our mark, and in a session of their own with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = [
        subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, env={}),
        subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True),
    ]
    pids = [int(child.stdout.readline()) for child in children if child.stdout]
    Path(ctx.plan.description).write_text(" ".join(map(str, pids)))
    threading.Event().wait()
    return {}


def count(ctx: StepContext) -> dict[str, Any]:
    for tokens in range(0, ctx.dataset.budget_tokens + 1, ctx.dataset.budget_tokens // 10):
        ctx.progress(f"{tokens} tokens", tokens=tokens, tokens_per_s=10.0, in_flight=3)
        time.sleep(0.02)
    ctx.progress("counted")
    return {"tokens": ctx.dataset.budget_tokens}


def main() -> int:
    STEPS.update(TEST_STEPS)
    if sys.argv[1] == "job":
        from draftmill.jobs import transport

        return transport.main(sys.argv[2], program=[sys.executable, "-u", __file__])
    from draftmill.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
