"""What is known about how SGLang fails: patterns in its log, what they mean, and what to do.

To teach draftmill a new failure, add a rule where it belongs in the order (the most telling first) and a case to its test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from draftmill.serving.folder import Kind
from draftmill.serving.logtext import LogText


def _always(log: LogText) -> bool:
    del log
    return True


@dataclass(frozen=True)
class Rule:
    """`pattern` is searched in one exception (`Name: message`) or in one line that complains.

    echo: says only that another process is gone; speaks where nothing else does. when: whether the rule makes sense for this log.
    in_lines: whether lines outside exceptions count, too; a healthy SGLang logs much of what it does without as a complaint.
    """

    cause: str
    pattern: re.Pattern[str]
    what: str
    advice: str
    kind: Kind
    when: Callable[[LogText], bool] = _always
    echo: bool = False
    in_lines: bool = True


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def _loading_weights(log: LogText) -> bool:
    return not any("Load weight end" in line or "Loading weights took" in line for line in log.lines)


def _not_ready(log: LogText) -> bool:
    return not log.was_ready


def _ready(log: LogText) -> bool:
    return log.was_ready


_GPU_MEMORY = _any(
    r"OutOfMemoryError",
    r"(?:CUDA|HIP) (?:error: )?out of memory",
    r"cudaErrorMemoryAllocation",
    r"(?:prefill|decode) out of memory",
)

RULES: tuple[Rule, ...] = (
    Rule(
        "unsupported_flag",
        _any(
            r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)",
            r"Unsupported config option",
        ),
        "SGLang refused its arguments",
        "correct extra_args in the server profile; `python -m sglang.launch_server --help` lists what this build knows",
        "permanent",
    ),
    Rule(
        "disk_full",
        _any(r"No space left on device", r"Disk quota exceeded", r"\bErrno (?:28|122)\b"),
        "a disk of the host is full",
        "free space (caches below ~/.cache, /tmp and /dev/shm count, too), then retry",
        "temporary",
    ),
    Rule(
        "port_in_use",
        _any(r"address already in use", r"\bErrno 98\b", r"EADDRINUSE", r"port \d+ is (?:already )?(?:in use|occupied|not available)"),
        "a port is in somebody else's use",
        "stop who holds it, or give the server profile another port",
        "temporary",
    ),
    Rule(
        "kernel_resources",
        _any(r"OutOfResources", r"out of resource: ", r"too many resources requested for launch"),
        "a GPU kernel needs more than this GPU has",
        "this build and this GPU do not go together as configured: choose another attention or MoE backend in extra_args, or another build",
        "permanent",
    ),
    Rule(
        "no_kernel",
        _any(r"no kernel image is available", r"requires (?:compute capability|sm_?\d+)", r"unsupported (?:gpu )?arch(?:itecture)?\b"),
        "this build has no kernels for this GPU",
        "install a build for this GPU's architecture, or choose other backends in extra_args",
        "permanent",
    ),
    Rule(
        "memory_kv",
        _any(
            r"Not enough memory\. Please try to", r"No available memory for the (?:KV )?cache", r"max_total_num_tokens.{0,20}(?:-\d|\b0\b)"
        ),
        "no GPU memory is left for the KV cache",
        "raise memory_fraction, or use a profile with more GPUs, smaller weights or a smaller KV type",
        "permanent",
    ),
    Rule(
        "memory_weights",
        _GPU_MEMORY,
        "the weights do not fit into GPU memory",
        "see who else uses the GPUs; otherwise use more GPUs (tensor_parallel) or smaller weights",
        "permanent",
        when=_loading_weights,
    ),
    Rule(
        "memory_runtime",
        _GPU_MEMORY,
        "GPU memory ran out while generating",
        "lower memory_fraction by 0.02 to 0.05, or chunked-prefill-size in extra_args",
        "temporary",
        when=_ready,
    ),
    Rule(
        "memory_kv",
        _GPU_MEMORY,
        "GPU memory ran out while the KV cache or the CUDA graphs were made",
        "lower memory_fraction, or see who else uses the GPUs",
        "permanent",
    ),
    Rule(
        "gpu_fault",
        _any(
            r"\bXid\b", r"uncorrectable ECC", r"illegal memory access", r"unspecified launch failure", r"device-side assert", r"GPU is lost"
        ),
        "a GPU reported a fault",
        "retry; where it comes again, look at `nvidia-smi -q` and the kernel log for that GPU",
        "temporary",
    ),
    Rule(
        "driver",
        _any(r"driver version is insufficient", r"Found no NVIDIA driver", r"no CUDA-capable device", r"Driver/library version mismatch"),
        "the GPU driver does not work with this build",
        "see `nvidia-smi`; after a driver update the host may need a reboot",
        "permanent",
    ),
    Rule(
        "gpu_count",
        _any(
            r"invalid device ordinal", r"device_count\(\)", r"not enough GPUs", r"world[_ ]size .{0,40}(?:larger|greater|exceeds).{0,40}GPU"
        ),
        "the host has fewer GPUs than the profile asks for",
        "choose a profile for this host, or see what nvidia-smi says",
        "permanent",
    ),
    Rule(
        "remote_code",
        _any(r"trust_remote_code"),
        "the model needs its own code",
        "set trust_remote_code in the server profile, once you trust it",
        "permanent",
        in_lines=False,
    ),
    Rule(
        "tokenizer",
        _any(r"tokenizer", r"tiktoken", r"sentencepiece"),
        "the tokenizer could not be loaded",
        "check tokenizer_path in the server profile, and whether the host has the package it asks for",
        "permanent",
        in_lines=False,
        when=_not_ready,
    ),
    Rule(
        "missing_file",
        _any(
            r"FileNotFoundError",
            r"No such file or directory",
            r"does not appear to have a file",
            r"Cannot find any model weights",
            r"(?:Repository|Revision|LocalEntry)NotFound",
            r"GatedRepo",
            r"OfflineModeIsEnabled",
            r"couldn't connect to '?https?://",
            r"Can't load (?:the )?config",
            r"HFValidationError",
        ),
        "a file of the model is missing",
        "check model_path in the server profile, and that the model is complete on the host",
        "permanent",
        in_lines=False,
    ),
    Rule(
        "missing_package",
        _any(r"ModuleNotFoundError", r"\bNo module named\b"),
        "a Python package is missing on the host",
        "install it into the environment that serves the model",
        "permanent",
        in_lines=False,
    ),
    Rule(
        "unsupported_dtype",
        _any(
            r"(?:unsupported|not supported|invalid|unknown|unrecognized).{0,60}(?:dtype|quantiz|kv[_ -]?cache|fp8|bf16|architecture)",
            r"(?:dtype|quantiz\w*|kv[_ -]?cache|fp8|bf16|architectures?).{0,60}(?:not (?:currently )?(?:supported|impl)|unsupported)",
            r"Model architectures? .{0,80}not supported",
        ),
        "this build or GPU does not support a type, method or model that was asked for",
        "correct kv_cache_dtype, model_path or extra_args in the server profile",
        "permanent",
        in_lines=False,
    ),
    Rule(
        "host_memory",
        _any(r"Cannot allocate memory", r"\bErrno 12\b", r"MemoryError", r"Bus error", r"DefaultCPUAllocator", r"oom-kill"),
        "the host ran out of memory",
        "see who uses it with `free -g`; lower hicache_ratio, or give /dev/shm more room",
        "temporary",
    ),
    Rule(
        "open_files",
        _any(r"Too many open files", r"\bErrno 24\b"),
        "the limit on open files was reached",
        "raise it (`ulimit -n`) for the user that runs draftmill on the host",
        "permanent",
    ),
    Rule(
        "nccl",
        _any(
            r"Watchdog caught collective operation timeout",
            r"ProcessGroup(?:NCCL|Gloo).{0,200}time(?:d )?-?out",
            r"\bNCCL (?:error|WARN|timeout)",
            r"nccl(?:System|Internal|Remote|UnhandledCuda)Error",
            r"DistBackendError",
            r"Connection closed by peer",
        ),
        "the GPUs lost each other (NCCL)",
        "retry; where it comes again, set NCCL_DEBUG=INFO in the profile's env and look at PCIe and NVLink of the host",
        "temporary",
        echo=True,
    ),
    Rule(
        "watchdog",
        _any(r"watchdog.{0,20}time(?:d )?-?out"),
        "a scheduler made no step for so long that SGLang's own watchdog ended it",
        "retry; where it comes again, raise watchdog-timeout in extra_args or look for a hung GPU",
        "temporary",
        echo=True,
    ),
)
"""Echoes come last: when one scheduler dies, its peers complain of the lost connection, and that is not the cause."""

KILLED = Rule(
    "killed",
    _any(r"exit(?:ed with)? ?code:? ?-9\b", r"exitcode[=:] ?-9\b", r"\bSIGKILL\b", r"signal 9\b"),
    "a process of the server was killed from outside",
    "the kernel does that when memory runs out (see `dmesg`), or a person did",
    "temporary",
)

TERMINATED = Rule(
    "terminated",
    _any(r"SIGTERM received", r"Signal SIGTERM"),
    "somebody else than draftmill told the server to end (SIGTERM)",
    "find out who; a retry starts it again",
    "temporary",
)

ECHO_EXCEPTION = re.compile(
    r"BrokenPipe|ConnectionReset|ConnectionRefused|EOFError|ChildProcess|SystemExit|KeyboardInterrupt|CancelledError"
    r"|child .*(?:failed|died)"
)
"""Exceptions that tell of another process's end."""
