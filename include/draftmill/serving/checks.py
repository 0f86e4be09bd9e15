"""The checks of preflight. Each gives what it found (JSON-ready) and its faults, one sentence each."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftmill.layout import Workspace
from draftmill.serving.arguments import check_flags, wanted_flags
from draftmill.serving.build import ask_build
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.gpu import MIB, Gpu, all_gpus
from draftmill.serving.ground import gpu_count_fault, gpu_memory_faults, leftovers, port_fault
from draftmill.serving.leases import held_leases
from draftmill.serving.logind import session_fault
from draftmill.serving.model import Model, find_model
from draftmill.serving.pagecache import cached_fraction
from draftmill.serving.ports import is_listening, name_owner, port_owners
from draftmill.serving.processes import name_process
from draftmill.serving.stopping import supervisor_process
from draftmill.spec.plan import Plan
from draftmill.spec.server import NamedServer, ServerProfile, flag_name

Found = tuple[Any, list[str]]

_NEEDED = ("aiohttp", "orjson", "pydantic", "pyyaml", "requests", "transformers", "tokenizers", "datasets", "psutil", "tqdm")
_OLDEST, _NEWEST = (3, 10), (3, 13)
_GIB = 1 << 30
# A token is about 6.5 bytes of JSON ("12345,") once in the journal, once in the records and once in the corpus; the two latter carry a
# loss mask of 2 bytes a token besides. Prompts are stored once and repeated in records and corpus.
_BYTES_A_TOKEN = 24
_USUAL_PROMPT_TOKENS = 1000
_SPARE_BYTES = 2 * _GIB
_CLOCK_SLACK_S = 5.0
_OLDEST_CLOCK = 1_735_689_600
"""2025-01-01: a host that believes to live before it has lost its clock."""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def python() -> Found:
    """The interpreter that runs draftmill, and the packages it needs."""
    versions = {name: _version(name) for name in _NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    faults = []
    if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        faults.append(f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}; draftmill runs on 3.10 to 3.13")
    if missing:
        faults.append(f"{sys.executable} lacks {', '.join(missing)}; run draftmill with the Python that serves the model")
    return {"executable": sys.executable, "version": sys.version.split()[0], "packages": versions}, faults


def session() -> Found:
    """Whether jobs outlive the SSH connection that starts them."""
    fault = session_fault()
    return {"jobs_outlive_connections": fault is None}, [fault] if fault else []


def sglang(server: NamedServer, workspace: Workspace, interpreter: str, env: dict[str, str]) -> Found:
    """The SGLang build, and every flag of the profile that it does not know."""
    build = ask_build(interpreter, env, ServerFolder.of(workspace).root)
    flags = wanted_flags(server.profile, server.profile.model_path, server.profile.tokenizer_path, server.profile.port)
    faults = [f"server profile {server.name}: {fault}" for fault in check_flags(flags, build)]
    return {"python": interpreter, "version": build.version, "reads_config": build.reads_config}, faults


def model(profile: ServerProfile, workspace: Workspace, env: Mapping[str, str]) -> Found:
    """Where the model lies, how big it is, and how much of it is in the page cache."""
    found = find_model(workspace, profile.model_path)
    if found.folder is None:
        offline = env.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")
        if Path(found.name).is_absolute():
            return None, [f"model_path: {found.name} does not exist on this host; correct it in the server profile"]
        if offline:
            return None, [f"model_path: {found.name} is not in this host's cache and HF_HUB_OFFLINE is set; download it, or unset that"]
        return {"name": found.name, "local": False}, []
    return _weights(found), _model_faults(found)


def _weight_files(folder: Path) -> list[Path]:
    return sorted({*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.gguf")})


def _weights(found: Model) -> dict[str, Any]:
    files = _weight_files(found.folder) if found.folder else []
    return {
        "name": found.name,
        "local": True,
        "vocab_size": found.vocab_size,
        "context_length": found.context_length,
        "weight_bytes": sum(path.stat().st_size for path in files),
        "page_cache": cached_fraction(files),
    }


def _model_faults(found: Model) -> list[str]:
    faults = []
    if found.digest is None:
        faults.append(f"model_path: {found.folder} has no readable config.json; the model is incomplete, copy it again")
    if found.folder and not _weight_files(found.folder):
        faults.append(f"model_path: {found.folder} holds no weights (*.safetensors, *.bin, *.gguf); the model is incomplete, copy it again")
    return faults


def tokenizer(profile: ServerProfile, workspace: Workspace) -> Found:
    """Load the tokenizer as generation will, with all its checks."""
    from draftmill.prompts.tokenizer import load_tokenizer, tokenizer_request

    about = load_tokenizer(tokenizer_request(profile, workspace)).about
    kept = ("tokenizer_class", "vocab_size", "context_length", "think_ids", "eos_token_ids", "transformers")
    return {name: about[name] for name in kept if name in about}, []


def estimate_bytes(plan: Plan) -> int:
    """Disk a campaign will need, all its files together."""
    total = 0
    for dataset in plan.datasets:
        answers = -(-dataset.budget_tokens // dataset.expected_tokens)
        prompts = max(dataset.max_prompts or 0, answers)
        total += dataset.budget_tokens + prompts * (dataset.max_prompt_tokens or _USUAL_PROMPT_TOKENS)
    return total * _BYTES_A_TOKEN + _SPARE_BYTES


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def disk(plan: Plan, workspace: Workspace) -> Found:
    """Free space of the workspace against what the campaign will write; what is there already is not counted again."""
    folder = workspace.campaign(plan.campaign).root
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0
    needed = max(estimate_bytes(plan) - there, _SPARE_BYTES)
    root = _existing(workspace.root)
    free = shutil.disk_usage(root).free
    faults = []
    if free < needed:
        faults.append(
            f"disk: {root} has {free / _GIB:.1f} GiB free, the campaign may need {needed / _GIB:.1f}; free space, or lower the budget"
        )
    if not os.access(root, os.W_OK):
        faults.append(f"workspace: {root} cannot be written by this user; choose another workspace")
    return {"free_bytes": free, "needed_bytes": needed}, faults


def memory() -> Found:
    """Memory of the host and who uses most of it. Knows no fault: how much is enough depends on the model."""
    import psutil

    seen = psutil.virtual_memory()
    processes = [(entry.info["memory_info"].rss, entry.pid) for entry in psutil.process_iter(["memory_info"]) if entry.info["memory_info"]]
    largest = sorted(processes, reverse=True)[:3]
    return {
        "total_bytes": seen.total,
        "available_bytes": seen.available,
        "largest": [f"{name_process(pid)}: {rss // MIB:,} MiB" for rss, pid in largest],
    }, []


def own_server(workspace: Workspace) -> Found:
    """The server draftmill runs here now, or what an earlier one left behind, which the next launch ends."""
    folder = ServerFolder.of(workspace)
    state = read_state(folder)
    supervised = supervisor_process(workspace).alive()
    pids = leftovers(state or ServerState(), folder)
    return {
        "supervised": supervised,
        "state": state.state if state else "absent",
        "profile": state.server if state else "",
        "leases": [str(note) for note in held_leases(folder.leases)],
        "leftovers": [] if supervised else [name_process(pid) for pid in pids],
    }, []


def _ours(workspace: Workspace) -> set[int]:
    folder = ServerFolder.of(workspace)
    return set(leftovers(read_state(folder) or ServerState(), folder))


def gpu_count(profile: ServerProfile, env: Mapping[str, str]) -> Found:
    """The GPUs, and whether there are enough."""
    gpus = all_gpus()
    fault = gpu_count_fault(profile, gpus, env)
    return [f"{gpu.index}: {gpu.name}, {gpu.total // MIB:,} MiB" for gpu in gpus], [fault] if fault else []


def without(gpu: Gpu, pids: set[int]) -> Gpu:
    """The GPU as it would be without these processes."""
    theirs = sum(used for pid, used in gpu.processes.items() if pid in pids)
    others = {pid: used for pid, used in gpu.processes.items() if pid not in pids}
    return Gpu(gpu.index, gpu.uuid, gpu.name, gpu.total, gpu.used - theirs, others)


def gpu_memory(profile: ServerProfile, env: Mapping[str, str], workspace: Workspace) -> Found:
    """Memory in use on each GPU and by whom; a server of ours does not count, because it is joined or replaced."""
    ours = _ours(workspace)
    gpus = [without(gpu, ours) for gpu in all_gpus()]
    found = [{"gpu": gpu.index, "used_bytes": gpu.used, "by": [name_process(pid) for pid in gpu.processes]} for gpu in gpus]
    return found, gpu_memory_faults(profile, gpus, env)


def ports(profile: ServerProfile, workspace: Workspace) -> Found:
    """The HTTP port, and the NCCL port where the profile names one."""
    ours = _ours(workspace)
    faults = []
    if profile.port and not (ours and port_owners(profile.port, ours)):
        faults += [fault for fault in [port_fault(profile)] if fault]
    nccl = next((value for key, value in profile.extra_args.items() if flag_name(key) == "nccl-port"), None)
    if isinstance(nccl, int) and is_listening(nccl) and not (ours and port_owners(nccl, ours)):
        faults.append(f"nccl-port: {nccl} is taken by {name_owner(nccl)}; leave it out of extra_args, and SGLang chooses a free one")
    return {"port": profile.port, "nccl_port": nccl}, faults


def clock(workspace: Workspace) -> Found:
    """The clock against plain sense and against the clock of the workspace's file system, which may be another machine's."""
    root = _existing(workspace.root)
    now = time.time()
    faults = []
    if now < _OLDEST_CLOCK:
        faults.append(f"clock: this host believes it is {time.strftime('%Y-%m-%d', time.gmtime(now))}; set it (timedatectl)")
    drift = 0.0
    if os.access(root, os.W_OK):
        with tempfile.NamedTemporaryFile(dir=root, prefix=".draftmill-clock-") as probe:
            drift = round(os.fstat(probe.fileno()).st_mtime - time.time(), 3)
    if abs(drift) > _CLOCK_SLACK_S:
        faults.append(f"clock: the file system of {root} is {drift:+.0f} s away from this host; synchronise both (timedatectl, chrony)")
    return {"unix_s": round(now, 3), "file_system_drift_s": drift}, faults
