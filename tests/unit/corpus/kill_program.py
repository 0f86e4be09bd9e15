"""Merges that are killed at their Nth operation on files: `kill_program.py PLAN`.

Every opening, renaming, linking and removing of a file in the workspace is an operation (Python's audit events), so that going through
all N covers every moment at which something on disk could be half done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from draftmill.corpus import merge
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.spec.plan import Plan

EVENTS = {"open", "os.rename", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.link", "shutil.rmtree", "os.truncate"}


class Watch:
    """Counts operations below `workspace`, and kills this process before number `last`."""

    def __init__(self) -> None:
        self.workspace = ""
        self.count = 0
        self.last = -1
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        paths = [os.fsdecode(part) for part in arguments if isinstance(part, str | bytes | os.PathLike)]
        if event in EVENTS and self.workspace and any(path.startswith(self.workspace) for path in paths):
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            self.count += 1


def run(plan: Plan, workspace: str) -> None:
    merge.run(StepContext(plan, Workspace(Path(workspace)), lambda *_, **__: None))


def main() -> None:
    """The first line of standard input is a workspace: merged, and the number of operations printed. Each later line, `WORKSPACE N`, is
    merged in a fork, which has everything imported already; `killed` is printed, or `survived`.
    """
    plan = Plan.model_validate_json(Path(sys.argv[1]).read_bytes())
    watch = Watch()
    watch.workspace = sys.stdin.readline().strip()
    run(plan, watch.workspace)
    print(watch.count, flush=True)
    for line in sys.stdin:
        workspace, last = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            watch.workspace, watch.count, watch.last = workspace, 0, int(last)
            run(plan, workspace)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "survived", flush=True)


if __name__ == "__main__":
    main()
