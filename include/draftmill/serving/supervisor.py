"""The supervisor: the one owner of the SGLang process tree of a workspace.

It launches, waits for readiness, watches, restarts after a crash (bounded, with a diagnosis), stops when told (SIGTERM) or when nobody
has held a lease for the profile's idle time, and says all it knows in state.json. It is one thread that looks twice a second.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections import deque
from types import FrameType
from typing import Any

from draftmill.errors import DraftmillError, ExitCode, PermanentError, TemporaryError
from draftmill.files import FileLock
from draftmill.jobs.detached import code_root
from draftmill.jobs.proc import ProcessStat, boot_id
from draftmill.layout import Workspace
from draftmill.serving.arguments import Command, fingerprint, wanted_flags, write_command
from draftmill.serving.build import ask_build, base_environment
from draftmill.serving.diagnosis import Diagnosis, diagnose
from draftmill.serving.ending import Ending
from draftmill.serving.folder import Diagnosed, ServerFolder, ServerRequest, ServerState, read_request, read_state, write_state
from draftmill.serving.gpu import used_by_index
from draftmill.serving.ground import check_ground, end_leftovers
from draftmill.serving.launch import Launch, drop_old_logs
from draftmill.serving.leases import held_leases
from draftmill.serving.model import Model, find_model
from draftmill.serving.ports import free_port
from draftmill.serving.probe import Facts, Probe
from draftmill.serving.processes import name_process
from draftmill.serving.readiness import Await, Readiness
from draftmill.serving.redact import redact
from draftmill.serving.verify import verify_gone
from draftmill.serving.watch import Watch
from draftmill.spec.server import ServerProfile

_LONGEST_BACKOFF_S = 120.0
_TELL_EVERY_S = 5.0
_LOAD_STOP_S = 5.0


class Supervisor:
    """Runs the server of `request` until it is stopped, idle, or given up."""

    def __init__(self, workspace: Workspace, request: ServerRequest) -> None:
        self._workspace = workspace
        self._folder = ServerFolder.of(workspace)
        self._request = request
        self._profile: ServerProfile = request.server.profile
        self._state = ServerState()
        self._stop = False
        self._restarts: deque[float] = deque()
        self._leased_at = time.monotonic()
        self._told_at = 0.0
        self._admission = FileLock(self._folder.admission)
        self._failures_before_ready: list[str] = []

    def run(self) -> ExitCode:
        """Own the server until its end. Returns what a job with this end would exit with; state.json says more."""
        lock = FileLock(self._folder.lock)
        if not lock.acquire(f"supervisor, pid {os.getpid()}"):
            raise TemporaryError(f"{self._folder.lock}: held by {lock.holder()}; it has to end before another one can start")
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        previous = read_state(self._folder)
        self._state = ServerState(
            server=self._request.server.name,
            request=self._request.digest,
            supervisor=secrets.token_hex(8),
            supervisor_pid=os.getpid(),
            incarnation=previous.incarnation if previous else 0,
            gpu_used_before=previous.gpu_used_before if previous else {},
        )
        try:
            if previous:
                end_leftovers(previous)
            return self._serve()
        except DraftmillError as error:
            self._fail(Diagnosis("refused", str(error), "", "permanent" if isinstance(error, PermanentError) else "temporary"))
            return error.exit_code
        except Exception as error:
            self._fail(
                Diagnosis("supervisor", f"the supervisor itself failed: {type(error).__name__}: {error}", "see its log", "temporary")
            )
            raise

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop = True

    # ---- one incarnation after the other

    def _serve(self) -> ExitCode:
        while True:
            ending, launch, was_ready = self._incarnation()
            diagnosis = None if ending.orderly else diagnose(launch.log, ending)
            self._end(launch, drain=was_ready and ending.orderly)
            if diagnosis is None:
                self._write(state="stopped", message=ending.why)
                return ExitCode.DONE
            self._record(diagnosis)
            if self._give_up(diagnosis, was_ready):
                self._fail(diagnosis)
                return ExitCode.PERMANENT if diagnosis.kind == "permanent" else ExitCode.TEMPORARY
            if self._back_off():
                self._write(state="stopped", message="stopped while waiting for a restart")
                return ExitCode.DONE

    def _incarnation(self) -> tuple[Ending, Launch, bool]:
        """Launch once and watch to the end: how it ended, the launch, and whether it ever was ready."""
        launch, probe, model = self._launch()
        try:
            outcome = Readiness(launch, self._await(probe, model)).wait()
            if isinstance(outcome, Ending):
                return outcome, launch, False
            refusal = self._become_ready(outcome, model, launch)
            if refusal:
                return refusal, launch, True
            watch = Watch(launch, probe, self._profile.silent_s, self._leased)
            return watch.until_end(self._interrupted, lambda: self._keep_records(launch)), launch, True
        except BaseException:
            self._end(launch, drain=False)
            raise
        finally:
            probe.close()

    def _launch(self) -> tuple[Launch, Probe, Model]:
        profile = self._profile
        incarnation = self._state.incarnation + 1
        self._write(state="starting", message="checking the host", incarnation=incarnation, ready_at=None)
        env = base_environment(self._workspace.secrets, code_root()) | profile.env
        gpus = check_ground(profile, env)
        build = ask_build(self._python(), env, self._folder.root)
        model = find_model(self._workspace, profile.model_path)
        tokenizer = find_model(self._workspace, profile.tokenizer_path).name if profile.tokenizer_path else None
        port = profile.port or free_port(profile.host)
        flags = wanted_flags(profile, model.name, tokenizer, port)
        command = write_command(profile, build, flags, self._folder.config)
        mark = secrets.token_hex(16)
        log = self._folder.log(incarnation)
        base_url = f"http://{_reachable(profile.host)}:{port}"
        used = used_by_index(gpus)
        # Written before the start, so that a supervisor killed right after it leaves its successor a mark to search for.
        self._write(
            message="starting SGLang",
            boot_id=boot_id(),
            mark=mark,
            log=str(log),
            base_url=base_url,
            port=port,
            api_key=command.api_key,
            version=build.version,
            arguments=dict(command.settings),
            fingerprint=fingerprint(build.version, command.settings, model.digest),
            vocab_size=model.vocab_size,
            gpu_used_before=used,
            launched_at=time.time(),
            leader=None,
            processes=[],
        )
        launch = self._start(command, env, mark)
        self._write(leader=launch.leader, processes=launch.members.records())
        drop_old_logs(log.parent)
        return launch, Probe(base_url, command.api_key), model

    def _start(self, command: Command, env: dict[str, str], mark: str) -> Launch:
        try:
            return Launch(command.argv, env, mark, self._folder.log(self._state.incarnation), self._folder.root)
        except OSError as error:
            raise TemporaryError(f"SGLang cannot be started: {error}; see whether the host is out of memory or processes") from None

    def _python(self) -> str:
        return str(self._workspace.resolve(self._profile.python)) if self._profile.python else sys.executable

    def _await(self, probe: Probe, model: Model) -> Await:
        return Await(self._profile, model.name, self._state.port, probe, self._interrupted, self._tell)

    def _become_ready(self, facts: Facts, model: Model, launch: Launch) -> Ending | None:
        """Write down what came up; an ending where it is of no use."""
        capacity, needed = facts.kv_capacity_tokens, self._profile.min_kv_tokens
        context = facts.context_length or self._profile.context_length or model.context_length
        self._write(
            model_path=facts.model_path,
            served_model_name=facts.served_model_name,
            version=facts.version if facts.version != "unknown" else self._state.version,
            kv_capacity_tokens=capacity,
            context_length=context,
            max_req_input_len=facts.max_req_input_len,
            processes=launch.members.records(),
        )
        if capacity is not None and needed is not None and capacity < needed:
            return Ending("too_small", f"its KV cache holds {capacity:,} tokens, the profile asks for at least {needed:,}")
        self._failures_before_ready.clear()
        self._write(state="ready", message="ready", ready_at=time.time())
        return None

    # ---- what interrupts a launch or a server

    def _interrupted(self) -> Ending | None:
        if self._stop:
            return Ending("asked", "stopped on request")
        report = self._folder.wedged(self._state.incarnation)
        if self._state.state == "ready" and report.exists():
            return Ending("wedged", f"reported by {report.read_text(errors='replace').strip() or 'a holder'}")
        return self._idle()

    def _leased(self) -> bool:
        return bool(held_leases(self._folder.leases))

    def _idle(self) -> Ending | None:
        """An ending once nobody has held a lease for long enough. From then on this process holds admission, so that nobody joins
        a server that is about to go; whoever comes waits, and starts a new one."""
        if self._leased():
            self._leased_at = time.monotonic()
            return None
        if time.monotonic() - self._leased_at < self._profile.idle_stop_s:
            return None
        if not self._admission.acquire(f"supervisor, pid {os.getpid()}: stopping an idle server"):
            return None
        if self._leased():
            self._admission.release()
            return None
        return Ending("idle", f"nobody needed it for {self._profile.idle_stop_s:.0f} s")

    # ---- endings

    def _end(self, launch: Launch, *, drain: bool) -> None:
        """End the launch and verify it. TemporaryError names what survived."""
        started = time.monotonic()

        def waiting(left: list[ProcessStat]) -> None:
            self._tell(f"waiting for {len(left)} processes to finish, {time.monotonic() - started:.0f} s")

        drain_s = self._profile.drain_s if drain else 0.0
        if self._state.state != "ready" and launch.exit_code() is None:
            drain_s = min(_LOAD_STOP_S, self._profile.drain_s)
        self._write(state="stopping" if drain else self._state.state, processes=launch.members.records())
        survivors = launch.end(drain_s, waiting)
        self._write(processes=launch.members.records())
        if survivors:
            names = ", ".join(name_process(stat.pid) for stat in survivors)
            raise TemporaryError(f"processes of the server survived SIGKILL: {names}; the host has to be looked at")
        verify_gone(self._state)

    def _record(self, diagnosis: Diagnosis) -> None:
        sentence = redact(diagnosis.sentence, self._state.api_key)
        last = Diagnosed(
            cause=diagnosis.cause,
            sentence=sentence,
            advice=diagnosis.advice,
            kind=diagnosis.kind,
            incarnation=self._state.incarnation,
            at=time.time(),
        )
        self._write(last=last, message=sentence)

    def _give_up(self, diagnosis: Diagnosis, was_ready: bool) -> bool:
        """Whether a restart would be of no use: a person must change something, it fails to load in the same way again, or too many."""
        if diagnosis.kind == "permanent":
            return True
        if not was_ready:
            if diagnosis.cause in self._failures_before_ready:
                return True
            self._failures_before_ready.append(diagnosis.cause)
        now = time.monotonic()
        while self._restarts and now - self._restarts[0] > self._profile.restart_window_s:
            self._restarts.popleft()
        return len(self._restarts) >= self._profile.max_restarts

    def _back_off(self) -> bool:
        """Wait before a restart; True where a stop came in between."""
        wait_s = min(self._profile.restart_backoff_s * 2 ** len(self._restarts), _LONGEST_BACKOFF_S)
        self._restarts.append(time.monotonic())
        why = self._state.last.sentence if self._state.last else ""
        self._write(state="restarting", message=f"restarting in {wait_s:.0f} s: {why}", restarts=self._state.restarts + 1)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and not self._stop:
            time.sleep(0.2)
        return self._stop

    def _fail(self, diagnosis: Diagnosis) -> None:
        self._record(diagnosis)
        self._write(state="failed", message=self._state.last.sentence if self._state.last else diagnosis.sentence)

    # ---- state.json

    def _write(self, **changes: Any) -> None:
        self._state = self._state.model_copy(update=changes)
        write_state(self._folder, self._state)

    def _keep_records(self, launch: Launch) -> None:
        """Write down processes that came since the last look, so that a successor knows them."""
        records = launch.members.records()
        if set(map(_key, records)) != set(map(_key, self._state.processes)):
            self._write(processes=records)

    def _tell(self, line: str) -> None:
        now = time.monotonic()
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            self._write(message=redact(line, self._state.api_key)[:200])


def _key(record: Any) -> tuple[int, int]:
    return record.pid, record.start_ticks


def _reachable(host: str) -> str:
    """The address under which this host reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104


def supervise(workspace: Workspace) -> ExitCode:
    """Run the supervisor for the request in the server's folder. PermanentError where there is none."""
    request = read_request(ServerFolder.of(workspace))
    if request is None:
        raise PermanentError(f"{ServerFolder.of(workspace).request}: no request; the server is started by `launch` or `generate`")
    return Supervisor(workspace, request).run()
