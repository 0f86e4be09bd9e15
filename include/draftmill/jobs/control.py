"""Start, look at and stop the jobs of a host. A job is a step that runs as a detached process in its own folder."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Sequence

import orjson

from draftmill.errors import ExitCode, PermanentError, TemporaryError
from draftmill.files import read_json, write_json
from draftmill.jobs.bundle import code_hash
from draftmill.jobs.detached import DetachedProcess, DetachedState, code_root
from draftmill.jobs.logtail import LogPiece, read_piece
from draftmill.jobs.models import JobKey, JobState, JobStatus, StartRequest, StatusRequest, StopRequest
from draftmill.jobs.proc import command_line
from draftmill.jobs.secrets import merge_secrets
from draftmill.jobs.step import STEPS
from draftmill.layout import Workspace
from draftmill.spec.plan import Plan

REPLACE_GRACE_S = 60
"""How long a job of another spec is given to end in order before its successor starts."""
_LOOK_S = 0.1
_LONGEST_LOOK_S = 0.5


def _process(workspace: str, key: JobKey) -> DetachedProcess:
    return DetachedProcess(Workspace.at(workspace).campaign(key.campaign).job(key.task, key.dataset))


def narrowed(key: JobKey, plan: Plan) -> Plan:
    """The part of `plan` that the job depends on. PermanentError where key and plan do not fit each other."""
    entry = STEPS.get(key.task)
    if entry is None:
        raise PermanentError(f"job {key}: {key.task!r} is no step; known: {', '.join(STEPS)}")
    if key.campaign != plan.campaign:
        raise PermanentError(f"job {key}: its plan is of campaign {plan.campaign}")
    if entry.per_dataset != (key.dataset is not None):
        raise PermanentError(f"job {key}: {key.task} {'needs the name of a data set' if entry.per_dataset else 'takes no data set'}")
    if key.dataset is None:
        return plan
    if key.dataset not in plan.names:
        raise PermanentError(f"job {key}: the plan has no data set {key.dataset}; it has {', '.join(plan.names)}")
    return plan.only(key.dataset, keep_earlier=entry.chooses_prompts)


def spec_digest(task: str, plan: Plan) -> str:
    """Hex SHA-256 of what makes two starts the same job: the step, its plan and the code; never the secrets."""
    value = {"task": task, "plan": plan.model_dump(mode="json"), "code": code_hash()}
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def this_program() -> tuple[list[str], dict[str, str]]:
    """The command that runs this very code with the same Python, and the environment it needs."""
    root = code_root()
    if root.is_file():
        return [sys.executable, "-u", str(root)], {}
    return [sys.executable, "-u", "-m", "draftmill"], {"PYTHONPATH": str(root)}


def start(request: StartRequest, program: Sequence[str] | None = None) -> JobStatus:
    """Start the job, or attach to it where it runs with the same spec. One that runs with another spec is stopped in order first.

    `program` is a command that understands `run-job FOLDER`: this very code unless told otherwise.
    Raises PermanentError where the request makes no sense, TemporaryError where nothing could be started.
    """
    workspace, key = Workspace.at(request.workspace), request.key
    plan = narrowed(key, request.plan)
    digest = spec_digest(key.task, plan)
    process = _process(request.workspace, key)
    with process.exclusive(REPLACE_GRACE_S * 2):
        identity = process.identity()
        attached = identity is not None and identity.spec.get("digest") == digest and identity.alive()
        if not attached:
            _end_other(process, key)
            secrets = merge_secrets(workspace, request.secrets)
            write_json(process.folder / "plan.json", plan.model_dump(mode="json"), 0o600)
            if key.dataset is None:
                write_json(workspace.campaign(key.campaign).plan, plan.model_dump(mode="json"), 0o600)
            _start_process(process, {"digest": digest, "workspace": str(workspace.root), **key.model_dump()}, secrets, program)
        process.remember_asker(request.asker)
    status = _describe(process, key, process.read_state(), LogPiece("", 0))
    return status.model_copy(update={"attached": attached})


def _end_other(process: DetachedProcess, key: JobKey) -> None:
    if process.alive() and (survivors := process.stop_exclusive(REPLACE_GRACE_S)):
        raise TemporaryError(f"job {key}: {_named(survivors)} of its predecessor cannot be killed; end it, then try again")


def _start_process(process: DetachedProcess, spec: dict[str, str], secrets: dict[str, str], program: Sequence[str] | None) -> None:
    command, needs = (list(program), {}) if program else this_program()
    # A shell started by sshd may have the C locale; text must be UTF-8 all the same. A crash in native code must leave a trace.
    env = {"PYTHONUTF8": "1", "PYTHONFAULTHANDLER": "1", **needs, **secrets}
    process.start_exclusive([*command, "run-job", str(process.folder)], spec, env)


def status(request: StatusRequest) -> JobStatus:
    """The job's state and the next piece of its log. Waits up to `wait_s` for something to tell."""
    process = _process(request.workspace, request.key)
    began = time.monotonic()
    first = process.read_state()
    pause = _LOOK_S
    while True:
        state = process.read_state()
        attempt = state.identity.attempt if state.identity else 0
        restarted = request.attempt not in (None, attempt)
        offset = _log_offset(process, request, attempt)
        piece = read_piece(process.log_of(attempt), offset, request.max_log_bytes, over=not state.alive)
        waited = time.monotonic() - began
        news = waited >= request.quiet_s and (piece.offset != offset or _progress(state) != _progress(first))
        if not state.alive or restarted or news or waited >= request.wait_s:
            break
        time.sleep(max(0.0, min(pause, request.wait_s - waited)))
        pause = min(pause * 1.5, _LONGEST_LOOK_S)
    if request.log_offset is not None and state.identity is not None:
        process.remember_shown(attempt, offset)
    return _describe(process, request.key, state, piece)


def recent_log(workspace: str, key: JobKey, max_bytes: int = 16 * 1024) -> str:
    """The end of the job's log, for a person; nobody's place in it changes."""
    path = _process(workspace, key).log
    size = path.stat().st_size if path.exists() else 0
    return read_piece(path, max(0, size - max_bytes), max_bytes, over=True).text


def _log_offset(process: DetachedProcess, request: StatusRequest, attempt: int) -> int:
    """Where the asker's next piece of the log of `attempt` starts."""
    if request.attempt not in (None, attempt):
        return 0
    return max(process.shown(attempt), request.seen) if request.log_offset is None else request.log_offset


def _progress(state: DetachedState) -> dict[str, object] | None:
    return (state.heartbeat or {}).get("progress")


def stop(request: StopRequest) -> JobStatus:
    """Stop the job and all it started. Where something survives even SIGKILL, the answer's `error` names it.

    A job that somebody other than `asker` was the last to start or attach to goes on, and the answer says `running`.
    """
    process = _process(request.workspace, request.key)
    with process.exclusive(request.grace_s + REPLACE_GRACE_S * 2):
        if request.asker is not None and request.asker != process.asker():
            return _describe(process, request.key, process.read_state(), LogPiece("", 0))
        ran = process.alive()
        survivors = process.stop_exclusive(request.grace_s)
        identity = process.identity()
        if ran and identity and read_json(process.result_path) is None:
            error = f"killed: it did not end in order within {request.grace_s:g} s"
            result = {"attempt": identity.attempt, "exit_code": int(ExitCode.STOPPED), "error": error, "result": None}
            with contextlib.suppress(OSError):  # on a full disk the job shows as lost
                write_json(process.result_path, result | {"finished_at": time.time()}, 0o600)
    answer = _describe(process, request.key, process.read_state(), LogPiece("", 0))
    if survivors:
        return answer.model_copy(update={"error": f"still alive after SIGKILL: {_named(survivors)}"})
    return answer


def _named(pids: list[int]) -> str:
    return ", ".join(f"pid {pid} ({command_line(pid)})" for pid in pids)


def _state(state: DetachedState, exit_code: int | None) -> JobState:
    if state.identity is None:
        return "absent"
    if state.alive:
        return "running"
    if exit_code is None:
        return "lost"
    if exit_code == ExitCode.DONE:
        return "done"
    return "stopped" if exit_code == ExitCode.STOPPED else "failed"


def _describe(process: DetachedProcess, key: JobKey, state: DetachedState, piece: LogPiece) -> JobStatus:
    identity = state.identity
    if identity is None:
        return JobStatus(key=key, state="absent")
    result = state.result if not state.alive and state.result and state.result["attempt"] == identity.attempt else {}
    heartbeat = state.heartbeat or {}
    name = _state(state, result.get("exit_code"))
    lost = f"its process (pid {identity.pid}) is gone and left no result: killed, out of memory, or the host was restarted"
    return JobStatus(
        key=key,
        state=name,
        spec=identity.spec.get("digest"),
        attempt=identity.attempt,
        pid=identity.pid,
        started_at=identity.started_at,
        exit_code=result.get("exit_code"),
        error=lost if name == "lost" else result.get("error"),
        result=result.get("result"),
        progress=heartbeat.get("progress"),
        heartbeat_at=heartbeat.get("at"),
        log=piece.text,
        log_offset=piece.offset,
        log_skipped_bytes=piece.skipped,
        more=piece.more,
    )
