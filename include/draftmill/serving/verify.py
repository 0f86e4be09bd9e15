"""After the end: no process, the port free, the GPU memory back. What is not so is named."""

from __future__ import annotations

import time

from draftmill.errors import TemporaryError
from draftmill.serving.folder import ServerFolder, ServerState
from draftmill.serving.gpu import MIB, Gpu, all_gpus
from draftmill.serving.ports import is_listening, port_owners
from draftmill.serving.processes import ServerMembers, name_process

WAIT_S = 30.0
_LOOK_S = 0.25
_SLACK = 512 * MIB


def remains(state: ServerState, folder: ServerFolder, gpus: list[Gpu]) -> list[str]:
    """What is left of the launch that `state` speaks of, one phrase each."""
    left = [name_process(stat.pid) for stat in ServerMembers.of_state(state, folder).find()]
    # The kernel frees a socket with its processes: a listener that can be seen and is not among ours came later and is not ours.
    if state.port and is_listening(state.port) and not port_owners(state.port):
        left.append(f"port {state.port} is still listened on by a process that cannot be seen")
    ours = {record.pid for record in state.processes}
    for gpu in gpus:
        before = state.gpu_used_before.get(str(gpu.index))
        if before is None:
            continue
        # Memory that somebody else took meanwhile is not ours to give back.
        others = sum(used for pid, used in gpu.processes.items() if pid not in ours)
        if gpu.used - max(before, others) > _SLACK:
            left.append(f"GPU {gpu.index} holds {(gpu.used - before) // MIB:,} MiB more than before the start")
    return left


def verify_gone(state: ServerState, folder: ServerFolder, wait_s: float | None = None) -> None:
    """Wait until nothing is left. TemporaryError names what is left after `wait_s` (WAIT_S): drivers need a moment to free memory."""
    deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    gpus = all_gpus() if state.gpu_used_before else []
    while left := remains(state, folder, gpus):
        if time.monotonic() > deadline:
            raise TemporaryError(f"the server was stopped, but not all of it is gone: {'; '.join(left)}; the host has to be looked at")
        time.sleep(_LOOK_S)
        gpus = all_gpus() if state.gpu_used_before else []
