"""The supervisor: the one owner of the SGLang process tree of a workspace.

It launches, waits for readiness, watches, restarts after a crash (bounded, with a diagnosis), stops when told (SIGTERM) or when nobody
has held a lease for the profile's idle time, and says all it knows in state.json. Its one thread looks twice a second.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import time
from types import FrameType

from draftmill.errors import DraftmillError, ExitCode, PermanentError, TemporaryError
from draftmill.files import FileLock
from draftmill.jobs.detached import code_root
from draftmill.jobs.proc import ProcessStat, boot_id
from draftmill.layout import Workspace
from draftmill.serving.arguments import Command, fingerprint, wanted_flags, write_command
from draftmill.serving.build import ask_build, base_environment
from draftmill.serving.diagnosis import Diagnosis, diagnose
from draftmill.serving.ending import Ending
from draftmill.serving.folder import Diagnosed, ServerFolder, ServerRequest, ServerState, read_request, read_state
from draftmill.serving.gpu import used_by_index
from draftmill.serving.ground import check_ground, end_leftovers
from draftmill.serving.launch import Launch, drop_old_logs
from draftmill.serving.leases import held_leases
from draftmill.serving.logtext import kv_capacity_in, read_log
from draftmill.serving.model import Model, find_model
from draftmill.serving.ports import free_port
from draftmill.serving.probe import Facts, Probe
from draftmill.serving.readiness import Await, Readiness
from draftmill.serving.redact import redact
from draftmill.serving.restarts import RestartPolicy
from draftmill.serving.statekeeper import StateKeeper
from draftmill.serving.statekeeper import log as supervisor_log
from draftmill.serving.verify import verify_gone
from draftmill.serving.watch import Watch
from draftmill.spec.server import ServerProfile

_STOP_WHILE_LOADING_S = 5.0
_LOOK_S = 0.2
_RECORD_EVERY_S = 2.0


class Supervisor:
    """Runs the server of `request` until it is stopped, idle, or given up."""

    def __init__(self, workspace: Workspace, request: ServerRequest) -> None:
        self._workspace = workspace
        self._folder = ServerFolder.of(workspace)
        self._profile: ServerProfile = request.server.profile
        self._stop = False
        self._leased_at = time.monotonic()
        self._recorded_at = 0.0
        self._admission = FileLock(self._folder.admission)
        self._restarts = RestartPolicy(self._profile)
        # Until what an earlier launch left behind is ended, its marks stay on record.
        self._before = read_state(self._folder) or ServerState()
        self._keeper = StateKeeper(
            self._folder,
            self._before.model_copy(
                update={
                    "state": "starting",
                    "message": "the supervisor has started",
                    "server": request.server.name,
                    "request": request.digest,
                    "supervisor": secrets.token_hex(8),
                    "supervisor_pid": os.getpid(),
                    "restarts": 0,
                    "ready_at": None,
                }
            ),
        )

    @property
    def _state(self) -> ServerState:
        return self._keeper.state

    def run(self) -> ExitCode:
        """Own the server until its end. Returns what a step with this end would exit with; state.json says more."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        shutil.rmtree(self._folder.reports, ignore_errors=True)
        try:
            found = end_leftovers(self._before, self._folder)
            if found:
                supervisor_log.warning("ended what an earlier server of ours left behind: %s", found)
            return self._serve()
        except DraftmillError as error:
            self._fail(Diagnosis("refused", str(error), "", "permanent" if isinstance(error, PermanentError) else "temporary"))
            return error.exit_code
        except Exception as error:
            text = f"the supervisor itself failed: {type(error).__name__}: {error}"
            self._fail(Diagnosis("supervisor", text, f"its log in {self._folder.supervisor} has the traceback", "temporary"))
            raise

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop = True

    def _serve(self) -> ExitCode:
        """One incarnation after the other."""
        while True:
            ending, launch, loaded = self._incarnation()
            diagnosis = None if ending.orderly else diagnose(launch.log, ending)
            self._keeper.write(message=ending.why)
            self._end(launch, drain_s=self._profile.drain_s if loaded and ending.orderly else 0.0, why=diagnosis)
            if diagnosis is None:
                self._keeper.write(state="stopped", message=ending.why)
                return ExitCode.DONE
            wait_s = self._restarts.wait_s(diagnosis, loaded=loaded)
            if wait_s is None:
                verdict = self._restarts.verdict(diagnosis)
                self._fail(verdict)
                return ExitCode.PERMANENT if verdict.kind == "permanent" else ExitCode.TEMPORARY
            self._record(diagnosis)
            if not self._waited(wait_s):
                self._keeper.write(state="stopped", message="stopped while waiting for a restart")
                return ExitCode.DONE

    def _incarnation(self) -> tuple[Ending, Launch, bool]:
        """Launch once and watch to the end: how it ended, the launch, and whether it was ready."""
        launch, probe, model = self._launch()
        try:
            awaited = Await(self._profile, model.name, self._state.port, probe, self._interrupted, self._keeper.tell)
            outcome = Readiness(launch, awaited).wait()
            if isinstance(outcome, Ending):
                return outcome, launch, False
            refusal = self._become_ready(outcome, model, launch)
            if refusal:
                return refusal, launch, False
            watch = Watch(launch, probe, self._profile.silent_s, self._leased)
            return watch.until_end(self._interrupted, lambda: self._keep_records(launch)), launch, True
        except BaseException:
            self._end(launch, drain_s=0)
            raise
        finally:
            probe.close()

    def _launch(self) -> tuple[Launch, Probe, Model]:
        """Check the host, write what will be there, and start SGLang. Raises DraftmillError where it would be in vain."""
        profile, incarnation = self._profile, self._state.incarnation + 1
        self._keeper.write(state="starting", message="checking the host", incarnation=incarnation, ready_at=None)
        env = base_environment(self._workspace.secrets, code_root()) | profile.env
        gpus = check_ground(profile, env)
        python = str(self._workspace.resolve(profile.python)) if profile.python else sys.executable
        build = ask_build(python, env, self._folder.root)
        model = find_model(self._workspace, profile.model_path)
        tokenizer = find_model(self._workspace, profile.tokenizer_path).name if profile.tokenizer_path else None
        port = profile.port or free_port(profile.host)
        command = write_command(profile, build, wanted_flags(profile, model.name, tokenizer, port), self._folder.config)
        base_url = f"http://{_reachable(profile.host)}:{port}"
        # Written before the start, so that a supervisor killed right after it leaves its successor a mark to search for.
        self._keeper.write(
            message="starting SGLang",
            boot_id=boot_id(),
            mark=secrets.token_hex(16),
            log=str(self._folder.log(incarnation)),
            base_url=base_url,
            port=port,
            api_key=command.api_key,
            version=build.version,
            arguments=dict(command.settings),
            fingerprint=fingerprint(build.version, command.settings, model.digest),
            vocab_size=model.vocab_size,
            gpu_used_before=used_by_index(gpus),
            launched_at=time.time(),
            leader=None,
            processes=[],
        )
        launch = self._start(command, env)
        self._keeper.write(leader=launch.leader, processes=launch.members.records())
        drop_old_logs(launch.log.parent)
        return launch, Probe(base_url, command.api_key), model

    def _start(self, command: Command, env: dict[str, str]) -> Launch:
        log = self._folder.log(self._state.incarnation)
        try:
            return Launch(command.argv, env, self._state.mark, log, self._folder.root)
        except OSError as error:
            raise TemporaryError(f"SGLang cannot be started: {error}; see whether the host is out of memory or processes") from None

    def _become_ready(self, facts: Facts, model: Model, launch: Launch) -> Ending | None:
        """Write down what came up; an ending where it is of no use."""
        capacity, needed = facts.kv_capacity_tokens or kv_capacity_in(read_log(launch.log)), self._profile.min_kv_tokens
        self._keeper.write(
            model_path=facts.model_path,
            served_model_name=facts.served_model_name,
            version=facts.version if facts.version != "unknown" else self._state.version,
            kv_capacity_tokens=capacity,
            context_length=facts.context_length or self._profile.context_length or model.context_length,
            max_req_input_len=facts.max_req_input_len,
            processes=launch.members.records(),
        )
        if capacity is not None and needed is not None and capacity < needed:
            return Ending("too_small", f"its KV cache holds {capacity:,} tokens, the profile asks for at least {needed:,}")
        self._restarts.was_ready()
        self._keeper.write(state="ready", message="ready", ready_at=time.time())
        return None

    def _interrupted(self) -> Ending | None:
        """What ends a launch or a server that is well by itself."""
        if self._stop:
            return Ending("asked", "stopped on request")
        report = self._folder.wedged(self._state.incarnation)
        if self._state.state == "ready" and report.exists():
            return Ending("wedged", f"is wedged, says {report.read_text(errors='replace').strip() or 'a holder of a lease'}")
        return self._idle()

    def _leased(self) -> bool:
        return bool(held_leases(self._folder.leases))

    def _idle(self) -> Ending | None:
        """An ending once nobody has held a lease for long enough.

        From then on this process holds admission, so that nobody joins a server that is about to go: whoever comes waits for its end
        and starts a new one.
        """
        if self._leased():
            self._leased_at = time.monotonic()
            return None
        if time.monotonic() - self._leased_at < self._profile.idle_stop_s:
            return None
        if not self._admission.acquire(f"the supervisor (pid {os.getpid()}), which stops an idle server"):
            return None
        if self._leased():
            self._admission.release()
            return None
        return Ending("idle", f"nobody needed it for {self._profile.idle_stop_s:.0f} s")

    def _end(self, launch: Launch, *, drain_s: float, why: Diagnosis | None = None) -> None:
        """End the launch and verify it. TemporaryError names what survived, after `why` it came to its end."""
        started = time.monotonic()

        def waiting(left: list[ProcessStat]) -> None:
            self._keeper.tell(f"waiting for {len(left)} processes to finish, {time.monotonic() - started:.0f} s")

        self._keeper.write(state="stopping", processes=launch.members.records())
        launch.end(max(drain_s, _STOP_WHILE_LOADING_S if self._stop else 0.0), waiting)
        try:
            verify_gone(self._state, self._folder)
        except TemporaryError as error:
            raise TemporaryError(f"{why.sentence}; after that, {error}" if why else str(error)) from None
        self._keeper.write(processes=[])

    def _waited(self, wait_s: float) -> bool:
        """Wait before a restart; False where a stop came in between."""
        why = self._state.last.sentence if self._state.last else ""
        self._keeper.write(state="restarting", message=f"restarting in {wait_s:.0f} s: {why}", restarts=self._state.restarts + 1)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and not self._stop:
            time.sleep(_LOOK_S)
        return not self._stop

    def _record(self, diagnosis: Diagnosis) -> None:
        last = Diagnosed(
            cause=diagnosis.cause,
            sentence=redact(diagnosis.sentence, self._state.api_key),
            advice=diagnosis.advice,
            kind=diagnosis.kind,
            incarnation=self._state.incarnation,
            at=time.time(),
        )
        self._keeper.write(last=last, message=last.sentence)

    def _fail(self, diagnosis: Diagnosis) -> None:
        self._record(diagnosis)
        self._keeper.write(state="failed")

    def _keep_records(self, launch: Launch) -> None:
        """Write down processes that came since the last look, so that a successor knows them."""
        now = time.monotonic()
        if now - self._recorded_at < _RECORD_EVERY_S:
            return
        self._recorded_at = now
        records = launch.members.records()
        if set(records) != set(self._state.processes):
            self._keeper.write(processes=records)
        self._keeper.catch_up()


def _reachable(host: str) -> str:
    """The address under which this host reaches a server that listens on `host`."""
    everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - read, not bound
    return everywhere.get(host, f"[{host}]" if ":" in host else host)


def supervise(workspace: Workspace) -> ExitCode:
    """Run the supervisor for the request in the server's folder.

    PermanentError where there is no request, TemporaryError where another supervisor lives: its lock is free the moment it is gone.
    """
    folder = ServerFolder.of(workspace)
    request = read_request(folder)
    if request is None:
        raise PermanentError(f"{folder.request}: no request; the server is started by `launch` or `generate`")
    lock = FileLock(folder.lock)
    if not lock.acquire(f"supervisor, pid {os.getpid()}"):
        raise TemporaryError(f"{folder.lock}: held by {lock.holder()}; two supervisors never coexist")
    return Supervisor(workspace, request).run()
