"""A server's end and its log -> one cause, one sentence, one piece of advice, and whether a retry helps.

Rules are tried from the most telling to the least. A rule looks first at the exceptions, the last one first, then at the other lines.
Rules marked as echoes (a lost connection, a time-out of the other ranks) speak only where no other rule does: when one scheduler
dies, seven others complain of it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftmill.serving.ending import Ending
from draftmill.serving.folder import Kind
from draftmill.serving.logtext import LoggedException, LogText, parse_log, read_log

_LONGEST = 300
_SHOWN_LINES = 3


@dataclass(frozen=True)
class Diagnosis:
    """`sentence` says what happened, `advice` what to do; `kind` says whether a retry can help."""

    cause: str
    sentence: str
    advice: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.sentence}; {self.advice}" if self.advice else self.sentence


@dataclass(frozen=True)
class Rule:
    """`pattern` is searched in one exception (`Name: message`) or one line. `where` narrows it to tracebacks that match."""

    cause: str
    pattern: re.Pattern[str]
    what: str
    advice: str
    kind: Kind
    when: Callable[[LogText], bool] = lambda log: True
    echo: bool = False


def _rx(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _weights_loaded(log: LogText) -> bool:
    return any("Load weight end" in line or "Loading weights took" in line for line in log.lines)


_OOM = _rx(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|HIP out of memory|cudaErrorMemoryAllocation|ut of memory\. Tried to"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "unsupported_flag",
        _rx(r"error: (?:unrecognized arguments|argument .*|the following arguments are required|ambiguous option).*"),
        "SGLang refused its arguments",
        "correct extra_args in the server profile; `python -m sglang.launch_server --help` lists what this build knows",
        "permanent",
    ),
    Rule(
        "disk_full",
        _rx(r"No space left on device|Errno 28|Disk quota exceeded|Errno 122"),
        "a disk of the host is full",
        "free space (caches below ~/.cache and /tmp count, and /dev/shm), then retry",
        "temporary",
    ),
    Rule(
        "port_in_use",
        _rx(r"address already in use|Errno 98|EADDRINUSE|port \d+ is (?:already )?(?:in use|occupied|not available)"),
        "a port is in somebody else's use",
        "stop who holds it, or give the server profile another port",
        "temporary",
    ),
    Rule(
        "kernel_resources",
        _rx(r"OutOfResources|out of resource: (?:shared memory|threads|registers)|too many resources requested for launch"),
        "a GPU kernel needs more than this GPU has",
        "this build and this GPU do not go together as configured: choose another attention or MoE backend in extra_args, or another build",
        "permanent",
    ),
    Rule(
        "no_kernel",
        _rx(
            r"no kernel image is available|is not compiled for|requires (?:compute capability|sm_?\d+)|unsupported (?:gpu )?arch(?:itecture)?\b"
        ),
        "this build has no kernels for this GPU",
        "install a build for this GPU's architecture, or choose other backends in extra_args",
        "permanent",
    ),
    Rule(
        "memory_kv",
        _rx(r"Not enough memory\. Please try to|max_total_num_tokens.*(?:is|=|<=)\s*(?:-\d+|0\b)|No available memory for the cache"),
        "no GPU memory is left for the KV cache",
        "raise memory_fraction, lower max-running-requests, or use a profile with more GPUs or a smaller KV type",
        "permanent",
    ),
    Rule(
        "memory_weights",
        _OOM,
        "the weights do not fit into GPU memory",
        "see who else uses the GPUs; otherwise use more GPUs (tensor_parallel) or a smaller quantization",
        "permanent",
        when=lambda log: not _weights_loaded(log),
    ),
    Rule(
        "memory_runtime",
        _OOM,
        "GPU memory ran out while generating",
        "lower memory_fraction by 0.02 to 0.05, or chunked-prefill-size in extra_args",
        "temporary",
        when=lambda log: log.was_ready,
    ),
    Rule(
        "memory_kv",
        _OOM,
        "GPU memory ran out while the KV cache or the CUDA graphs were made",
        "lower memory_fraction, or see who else uses the GPUs",
        "permanent",
    ),
    Rule(
        "gpu_fault",
        _rx(r"\bXid\b|uncorrectable ECC|illegal memory access|unspecified launch failure|device-side assert|misaligned address"),
        "a GPU reported a fault",
        "retry; where it comes again, look at `nvidia-smi -q` and the kernel log for that GPU",
        "temporary",
    ),
    Rule(
        "driver",
        _rx(
            r"CUDA driver version is insufficient|Found no NVIDIA driver|no CUDA-capable device|cuda driver initialization|NVML.*(?:mismatch|not loaded)"
        ),
        "the GPU driver does not work with this build",
        "see `nvidia-smi`; after a driver update the host may need a reboot",
        "permanent",
    ),
    Rule(
        "tokenizer",
        _rx(r"tokenizer|tiktoken|sentencepiece"),
        "the tokenizer could not be loaded",
        "check tokenizer_path and trust_remote_code in the server profile, and whether the host has the package it asks for",
        "permanent",
        when=lambda log: not log.was_ready,
    ),
    Rule(
        "remote_code",
        _rx(r"trust_remote_code"),
        "the model needs its own code",
        "set trust_remote_code in the server profile, once you trust it",
        "permanent",
    ),
    Rule(
        "missing_file",
        _rx(
            r"FileNotFoundError|No such file or directory|does not appear to have a file|couldn'?t connect to .*hub|RepositoryNotFound|GatedRepo"
            r"|LocalEntryNotFound|Cannot find any model weights|is not a local folder|OfflineModeIsEnabled"
        ),
        "a file of the model is missing",
        "check model_path in the server profile, and that the model is complete on the host",
        "permanent",
    ),
    Rule(
        "missing_package",
        _rx(r"ModuleNotFoundError|No module named"),
        "a Python package is missing on the host",
        "install it into the environment that serves the model",
        "permanent",
    ),
    Rule(
        "unsupported_dtype",
        _rx(
            r"(?:unsupported|not supported|invalid|unknown|unrecognized).{0,60}(?:dtype|quantiz|kv[_ -]?cache|fp8|bf16|architecture)"
            r"|(?:dtype|quantiz\w*|kv[_ -]?cache|fp8|bf16|architectures?).{0,60}(?:not supported|unsupported|is not implemented)"
        ),
        "this build or GPU does not support a type or method that was asked for",
        "correct kv_cache_dtype or extra_args in the server profile",
        "permanent",
    ),
    Rule(
        "host_memory",
        _rx(r"Cannot allocate memory|Errno 12\b|MemoryError|Bus error|unable to (?:open|allocate) shared memory|DefaultCPUAllocator"),
        "the host ran out of memory",
        "see who uses it with `free -g`; lower hicache_ratio, or give /dev/shm more room",
        "temporary",
    ),
    Rule(
        "open_files",
        _rx(r"Too many open files|Errno 24\b"),
        "the limit on open files was reached",
        "raise it (`ulimit -n`) for the user that runs draftmill on the host",
        "permanent",
    ),
    Rule(
        "nccl",
        _rx(
            r"Watchdog caught collective operation timeout|ProcessGroupNCCL.*(?:timed? ?out|Timeout)|NCCL (?:error|WARN|timeout)|ncclSystemError|ncclInternalError"
            r"|DistBackendError|Connection closed by peer|wait timeout after .* in \w*Gloo|gloo.*(?:timed out|closed)"
        ),
        "the GPUs lost each other (NCCL)",
        "retry; where it comes again, set NCCL_DEBUG=INFO in the profile's env and look at PCIe and NVLink of the host",
        "temporary",
        echo=True,
    ),
    Rule(
        "watchdog",
        _rx(r"watchdog.{0,20}time[sd]? ?-?out"),
        "a scheduler made no step for so long that SGLang's own watchdog ended it",
        "retry; where it comes again, raise watchdog-timeout in extra_args or look for a hung GPU",
        "temporary",
        echo=True,
    ),
)


def diagnose(log: Path, ending: Ending, needed_tokens: int | None = None) -> Diagnosis:
    """Why the server ended. Unknown logs give the last true exception, or the last lines."""
    return diagnose_text(read_log(log), ending, needed_tokens)


def diagnose_text(text: str, ending: Ending, needed_tokens: int | None = None) -> Diagnosis:
    """`diagnose`, for a log that is at hand."""
    log = parse_log(text)
    if ending.kind in ("port_taken", "wrong_model", "too_small"):
        return _of_ending(ending)
    diagnosis = _by_rules(log, echoes=False) or _killed(ending) or _by_exception(log) or _by_rules(log, echoes=True)
    if diagnosis:
        return diagnosis
    small = _small_cache(log, needed_tokens)
    if small and ending.kind != "died":
        return small
    return _by_ending(log, ending)


def _of_ending(ending: Ending) -> Diagnosis:
    if ending.kind == "too_small":
        return Diagnosis(
            "kv_too_small",
            ending.why,
            "raise memory_fraction, use a smaller KV type or more GPUs, or lower min_kv_tokens if so little is meant",
            "permanent",
        )
    if ending.kind == "wrong_model":
        return Diagnosis("wrong_model", ending.why, "look at model_path in the server profile", "permanent")
    return Diagnosis("port_in_use", ending.why, "stop it, or give the server profile another port", "temporary")


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def _by_rules(log: LogText, *, echoes: bool) -> Diagnosis | None:
    for rule in RULES:
        if rule.echo != echoes or not rule.when(log):
            continue
        found = _matching(rule, log)
        if found:
            return Diagnosis(rule.cause, f"{rule.what}: {_shorten(found)}", rule.advice, rule.kind)
    return None


def _matching(rule: Rule, log: LogText) -> str | None:
    for exception in reversed(log.exceptions):
        if rule.pattern.search(exception.text):
            return exception.text
    for line in reversed(_complaints(log)):
        if rule.pattern.search(line):
            return line
    return None


_COMPLAINT = re.compile(
    r"error|exception|fail|fatal|cannot|killed|timed? ?out|timeout|abort|watchdog|out of|no space|exceeded|warn\b", re.IGNORECASE
)


def _complaints(log: LogText) -> list[str]:
    """Lines outside tracebacks that complain. Indented lines are source code of frames, whatever words they hold."""
    return [line for line in log.meaningful(len(log.lines)) if not line.startswith((" ", "\t")) and _COMPLAINT.search(line)]


def _killed(ending: Ending) -> Diagnosis | None:
    if ending.exit_code == -signal.SIGKILL or (ending.kind == "died" and "was killed" in ending.why):
        return Diagnosis(
            "killed",
            f"a process of the server was killed from outside ({ending.why})",
            "the kernel does that when memory runs out (see `dmesg`), or a person did",
            "temporary",
        )
    return None


_ECHO = re.compile(
    r"BrokenPipe|ConnectionReset|ConnectionRefused|EOFError|ChildProcess|SystemExit|KeyboardInterrupt|CancelledError|child .*(?:failed|died)"
)


def _by_exception(log: LogText) -> Diagnosis | None:
    """The last exception that is not the mere echo of another process's end."""
    own = [exception for exception in log.exceptions if not _ECHO.search(exception.text)]
    if not own or any(rule.echo and rule.pattern.search(own[-1].text) for rule in RULES):
        return None
    return _unknown(own[-1])


def _unknown(exception: LoggedException) -> Diagnosis:
    return Diagnosis(
        "exception",
        f"SGLang failed with {_shorten(exception.text)}",
        "the server log has the whole traceback",
        "temporary",
    )


def _small_cache(log: LogText, needed: int | None) -> Diagnosis | None:
    sizes = [int(size) for line in log.lines for size in re.findall(r"max_total_num_tokens=(\d+)", line)]
    if not sizes or (needed is not None and sizes[-1] >= needed) or (needed is None and sizes[-1] >= _USUAL_ANSWER):
        return None
    return _of_ending(Ending("too_small", f"its KV cache holds {sizes[-1]:,} tokens, and {needed or _USUAL_ANSWER:,} are needed"))


_USUAL_ANSWER = 8192
"""Tokens of one long answer: a cache below this is of no use to anybody."""


def _by_ending(log: LogText, ending: Ending) -> Diagnosis:
    lines = " | ".join(_shorten(line) for line in log.meaningful(_SHOWN_LINES))
    said = f"; its log ends: {lines}" if lines else "; its log is empty"
    if ending.kind in ("silent", "wedged"):
        advice = "its process was ended; where it comes again, look at the GPUs with `nvidia-smi` and at the server log"
        return Diagnosis(ending.kind, f"the server {ending.why}{said}", advice, "temporary")
    return Diagnosis("died", f"the server ended by itself ({ending.why}){said}", "see the server log", "temporary")
