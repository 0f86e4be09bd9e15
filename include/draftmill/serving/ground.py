"""What must hold before SGLang is started: nothing of ours is left, the port is free, the GPUs are there and have room.

What belongs to others is named and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftmill.errors import PermanentError, TemporaryError
from draftmill.serving.folder import ServerFolder, ServerState
from draftmill.serving.gpu import MIB, Gpu, all_gpus, visible
from draftmill.serving.ports import is_listening, name_owner
from draftmill.serving.processes import ServerMembers, name_process, name_processes
from draftmill.spec.server import ServerProfile

_SLACK = 512 * MIB
"""A driver and an idle desktop hold this much of a GPU without anybody having done anything wrong."""


def leftovers(state: ServerState, folder: ServerFolder) -> list[int]:
    """Pids of an earlier launch of ours that still live."""
    return [stat.pid for stat in ServerMembers.of_state(state, folder).find()]


def end_leftovers(state: ServerState, folder: ServerFolder) -> list[int]:
    """End what an earlier launch of ours left behind. Returns what was found; TemporaryError names what cannot be ended."""
    members = ServerMembers.of_state(state, folder)
    found = [stat.pid for stat in members.find()]
    survivors = members.kill()
    if survivors:
        names = name_processes(stat.pid for stat in survivors)
        raise TemporaryError(f"an earlier server of ours cannot be ended: {names}; the host has to be looked at")
    return found


def port_fault(profile: ServerProfile) -> str | None:
    """A sentence where somebody else listens on the profile's port."""
    if profile.port == 0 or not is_listening(profile.port):
        return None
    return (
        f"port {profile.port} is taken by {name_owner(profile.port)}, which draftmill did not start and will neither use nor end;"
        " stop it, or give the server profile another port"
    )


def gpu_count_fault(profile: ServerProfile, gpus: list[Gpu], env: Mapping[str, str]) -> str | None:
    """A sentence where the profile wants more GPUs than SGLang would see."""
    seen = visible(gpus, env)
    if len(seen) >= profile.tensor_parallel:
        return None
    limited = f" (CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']})" if "CUDA_VISIBLE_DEVICES" in env else ""
    return (
        f"tensor_parallel is {profile.tensor_parallel}, but this host shows {len(seen)} GPU{'' if len(seen) == 1 else 's'}{limited};"
        " choose a profile for this host, or see what nvidia-smi says"
    )


def _holders(gpu: Gpu) -> str:
    names = [f"{name_process(pid)} with {used // MIB:,} MiB" for pid, used in sorted(gpu.processes.items(), key=lambda item: -item[1])]
    return ", ".join(names) or "nobody the driver can name"


def gpu_memory_faults(profile: ServerProfile, gpus: list[Gpu], env: Mapping[str, str]) -> list[str]:
    """A sentence for each GPU on which less is free than the profile's share of its memory, with who holds it."""
    faults = []
    for gpu in visible(gpus, env)[: profile.tensor_parallel]:
        needed, free = int(gpu.total * profile.memory_fraction), gpu.total - gpu.used
        if free < needed - _SLACK:
            faults.append(
                f"GPU {gpu.index} has {free // MIB:,} MiB free and memory_fraction {profile.memory_fraction} needs {needed // MIB:,}:"
                f" {_holders(gpu)} holds the rest; draftmill ends only what it started, so have it stopped"
            )
    return faults


def check_ground(profile: ServerProfile, env: Mapping[str, str]) -> list[Gpu]:
    """Check port and GPUs; gives the GPUs as they are before the start.

    PermanentError where the host has too few GPUs, TemporaryError where a port or memory is in somebody's use.
    """
    gpus = [] if profile.device == "cpu" else all_gpus()
    fault = None if profile.device == "cpu" else gpu_count_fault(profile, gpus, env)
    if fault:
        raise PermanentError(fault)
    faults = [fault for fault in (port_fault(profile), *gpu_memory_faults(profile, gpus, env)) if fault]
    if faults:
        raise TemporaryError("; ".join(faults))
    return gpus
