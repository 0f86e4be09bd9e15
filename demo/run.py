"""The driver of `make demo` and `make demo-stop`.

python -m demo.run start      set up, start, run the whole job, report; exit code 0 only if the run is green
python -m demo.run stop       stop everything and check that nothing is left
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from demo import host_files, report
from demo.airflow_service import COMPONENTS, USER, AirflowService
from demo.api import DAG, ENDED, Api, ApiError
from demo.processes import Background, stop_leftovers
from demo.ssh_host import Keys
from demo.state import CAMPAIGN, ROOT, Demo, sglang_python
from draftmill.files import FileLock, read_json, write_json
from draftmill.jobs.detached import DetachedProcess

SSH_HOST = "ssh-host"
RUN_S = 1800
STARTED_S = 30
LOG_LINES = 25
EVERY_S = 15


class Notice:
    """Progress for people: one line that is rewritten on a terminal; elsewhere a line now and then, and one for every new stage."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._shown = ("", -float(EVERY_S))

    def __call__(self, stage: str, numbers: str = "") -> None:
        """Show what is going on now: `stage` changes seldom, `numbers` all the time."""
        now = time.monotonic() - self._began
        line = f"[{now:4.0f} s] {stage}{numbers}"
        if self._terminal:
            print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        elif stage != self._shown[0] or now - self._shown[1] >= EVERY_S:
            print(line, flush=True)
            self._shown = (stage, now)

    def done(self, text: str = "") -> None:
        """End the line that is being rewritten, and say `text` for good."""
        print("\r\033[K" if self._terminal else "", end="")
        if text:
            print(text, flush=True)


def wait_until(ready: Callable[[], bool], seconds: float, failure: str) -> None:
    """Return once `ready()`; exits with `failure` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(failure)
        time.sleep(0.2)


def start_host(demo: Demo) -> None:
    """Start the SSH host where it is not running, on the port it had before if that is still free."""
    background, keys = Background(demo), Keys(demo.ssh)
    if background.find(SSH_HOST):
        return
    keys.port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "demo.ssh_host", str(demo.ssh), "--home", str(demo.home)]
    background.start(SSH_HOST, command, {"PYTHONPATH": f"{ROOT}:{ROOT / 'include'}", "PATH": "/usr/local/bin:/usr/bin:/bin"})
    log = background.log(SSH_HOST)
    wait_until(keys.port_file.exists, STARTED_S, f"The SSH host did not start; its output is in {log}.")


def start(demo: Demo) -> int:
    """The whole demo. Returns the exit code."""
    notice = Notice()
    take_place(demo)
    prepare_host(demo)
    service = AirflowService(demo)
    api = bring_up(demo, service, notice)
    run_id, before = begin_run(demo, api)
    login = f"user {USER}, password {demo.secret('password')}"
    notice.done(f"Run {run_id} of {DAG}: watch it at {service.address} ({login})")
    state = watch(demo, api, run_id, notice)
    notice.done()
    if state != "success":
        show_failures(api, run_id)
        print(f"\nThe run ended as {state}. Airflow is still there to look at; `make demo` goes on from here, `make demo-stop` ends it.")
        return 1
    finish(demo, api, run_id, before)
    print(f"UI:      {service.address}  ({login}); `make demo-stop` ends it")
    return 0


def take_place(demo: Demo) -> None:
    """Make the demo's folder and be the only driver in it, until this process ends. Exits with the reason where that cannot be."""
    odd = re.findall(r"[^\w.+@/-]", f"{demo.root}{sglang_python()}", re.ASCII)
    if odd:
        sys.exit(f"The path {demo.root} holds {odd[0]!r}, which a host's paths must not; put the repository under a plain name.")
    demo.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not FileLock(demo.root / "driver.lock").acquire():  # never released: the kernel does it when this process ends
        sys.exit("Another `make demo` is at work here; wait for it, or leave it with Ctrl-C in its terminal.")


def prepare_host(demo: Demo) -> None:
    """Put on the host what it needs, and start it."""
    print("Putting samples, model and configuration on the host", flush=True)
    demo.home.mkdir(parents=True, exist_ok=True)
    host_files.write_samples(demo)
    host_files.write_config(demo)
    host_files.make_model(demo)
    start_host(demo)


def bring_up(demo: Demo, service: AirflowService, notice: Notice) -> Api:
    """Start Airflow and wait until it is healthy and knows the DAG."""
    notice("starting Airflow")
    service.start()
    service.wait_healthy(notice)
    api = Api(service.address, USER, demo.secret("password"))
    wait_for_dag(api, notice)
    return api


def wait_for_dag(api: Api, notice: Notice) -> None:
    """Return once the DAG has been parsed. Exits with the reason where it cannot be."""
    notice("waiting for the DAG to be parsed")
    deadline = time.monotonic() + 120
    while not api.dag_is_known():
        errors = api.import_errors()
        if errors or time.monotonic() > deadline:
            sys.exit(f"The DAG could not be parsed:\n{errors[0] if errors else 'no error was recorded within 120 s'}")
        time.sleep(1)


def begin_run(demo: Demo, api: Api) -> tuple[str, dict[str, int]]:
    """Trigger a run, or go on watching one that is still active. Returns its id, and the tokens on disk before it began."""
    active, known = api.active_run(), read_json(demo.run) or {}
    if active and known.get("run_id") == active:
        return active, known["tokens_before"]
    before = report.tokens_on_disk(demo)
    run_id = active or api.trigger({"campaign": CAMPAIGN})
    write_json(demo.run, {"run_id": run_id, "tokens_before": before})
    return run_id, before


def watch(demo: Demo, api: Api, run_id: str, notice: Notice) -> str:
    """Show progress until the run has ended; returns its state."""
    deadline = time.monotonic() + RUN_S
    while time.monotonic() < deadline:
        state = api.run(run_id)["state"]
        if state in ("success", "failed"):
            return str(state)
        notice(*progress(demo, api.tasks(run_id)))
        time.sleep(2)
    return f"still running after {RUN_S} s"


def progress(demo: Demo, tasks: list[dict[str, Any]]) -> tuple[str, str]:
    """What runs now and what waits for its next try; how many tasks are done and how many tokens there are."""
    named = [(task["task_id"].removeprefix("dataset."), task["state"]) for task in tasks]
    parts = [_counted(name for name, state in named if state in ("running", "deferred"))]
    again = _counted(name for name, state in named if state == "up_for_retry")
    if again:
        parts.append(f"to be tried again: {again}")
    ended = sum(state in ENDED for _, state in named)
    tokens = sum(report.tokens_on_disk(demo).values())
    return "; ".join(filter(None, parts)) or "between tasks", f"; {ended} of {len(tasks)} tasks done, {tokens:,} tokens"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(Counter(names).items()))


def show_failures(api: Api, run_id: str) -> None:
    """Print the end of the log of every task that failed by itself."""
    for task in api.tasks(run_id):
        if task["state"] != "failed":
            continue
        label = f"{task['task_id']}[{task.get('rendered_map_index') or task['map_index']}]" if task["map_index"] >= 0 else task["task_id"]
        print(f"\n--- {label} failed; the end of its log:")
        try:
            print("\n".join(api.log_lines(run_id, task)[-LOG_LINES:]))
        except ApiError as error:
            print(error)


def finish(demo: Demo, api: Api, run_id: str, before: dict[str, int]) -> None:
    """Write the report and print the totals."""
    generated = {}
    for task in api.tasks(run_id):
        if task["task_id"] == "dataset.generate":
            result = api.result(run_id, task["task_id"], task["map_index"])
            generated[result["dataset"]] = result
    merged = api.result(run_id, "merge")
    corpus = Path(merged["train"])
    table = report.rows(demo, generated, before)
    report.write(demo, table, report.server_version(Path(merged["manifest"])), corpus)
    print(f"\n{report.show(table)}\n")
    print(f"Corpus:  {demo.relative(corpus)}  ({merged['rows']:,} rows, {merged['loss_tokens']:,} loss tokens)")
    print(f"Report:  {demo.relative(demo.report)}")


def stop(demo: Demo) -> int:
    """Stop everything: Airflow first, so that nothing is started anew, then jobs and server on the host, then the host."""
    background = Background(demo)
    background.stop(COMPONENTS)
    left: list[str] = []
    for folder in sorted({path.parent for path in demo.host.rglob("process.json")}):
        process = DetachedProcess(folder)
        if process.alive():
            print(f"stopping {folder.relative_to(demo.host)} on the host")
        left += [f"{pid} of {folder}" for pid in process.stop(grace_s=30)]
    background.stop([SSH_HOST])
    left += stop_leftovers(demo)
    if left:
        print("These processes could not be ended:", *left, sep="\n  ")
        return 1
    background.forget()
    print("The demo is stopped; nothing of it is running. `make demo` goes on where it was.")
    return 0


def main(arguments: list[str]) -> int:
    """The command line."""
    verbs = {"start": start, "stop": stop}
    if len(arguments) != 1 or arguments[0] not in verbs:
        print(__doc__)
        return 2
    try:
        return verbs[arguments[0]](Demo.here())
    except KeyboardInterrupt:
        print("\nLeft. What was started goes on in the background: `make demo` watches it again, `make demo-stop` ends it.")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
