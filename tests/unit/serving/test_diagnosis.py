from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.serving.diagnosis import Diagnosis, diagnose, diagnose_text
from draftmill.serving.ending import Ending
from draftmill.serving.logtext import clean_line, parse_log, read_log

SHARED = Path(__file__).resolve().parents[4] / "shared" / "server-logs"
STAMP = "[2026-02-03 04:05:06 TP3] "
LOADED = f"{STAMP}Load weight end. elapsed=90 s\n"
READY = f"{LOADED}{STAMP}The server is fired up and ready to roll!\n"


def traceback(last: str, start: str = f"{STAMP}Scheduler hit an exception: ") -> str:
    return (
        f"{start}Traceback (most recent call last):\n"
        '  File "/venv/sglang/srt/managers/scheduler.py", line 3067, in run_scheduler_process\n'
        "    raise TimeoutError('tokenizer No such file or directory')\n"
        "          ^^^^^^^^^^^^^^^^\n"
        f"{last}\n"
    )


NOISE = (
    f"{STAMP}Ignore import error when loading sglang.srt.models.x: No module named 'cutlass'\n"
    f"{STAMP}server_args=ServerArgs(model_path='/m', watchdog_timeout=300, api_key='hidden')\n"
    "/venv/x.py:76: UserWarning: Only CUDA, MUSA support GGUF quantization currently.\n"
    '  warnings.warn("tokenizer out of memory")\n'
    f"{STAMP}OpenAI Responses API disabled: init failed (ModuleNotFoundError: No module named 'openai_harmony')\n"
    f'{STAMP}INFO:     127.0.0.1:1 - "GET /get_server_info HTTP/1.1" 500 Internal Server Error\n'
)

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a total capacity of 94.97 GiB"
NCCL = (
    "[rank3]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=1580, OpType=ALLREDUCE) ran for 600004 milliseconds before timing out.\n"
)

CASES = [
    ("memory_weights", "permanent", traceback(OOM)),
    ("memory_kv", "permanent", LOADED + traceback(OOM)),
    ("memory_kv", "permanent", LOADED + traceback("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")),
    ("memory_runtime", "temporary", READY + traceback(OOM)),
    (
        "memory_runtime",
        "temporary",
        READY + traceback(OOM) + NCCL + traceback("ConnectionResetError: [Errno 104] Connection reset"),
    ),
    (
        "kernel_resources",
        "permanent",
        READY + traceback("triton.runtime.errors.OutOfResources: out of resource: shared memory"),
    ),
    ("no_kernel", "permanent", traceback("RuntimeError: CUDA error: no kernel image is available for execution on the device")),
    ("nccl", "temporary", READY + NCCL),
    ("nccl", "temporary", traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error")),
    ("unsupported_flag", "permanent", "usage: sglang serve [-h]\nsglang serve: error: unrecognized arguments: --enable-everything\n"),
    ("unsupported_flag", "permanent", "launch_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp9' (choose from 'auto')\n"),
    ("unsupported_dtype", "permanent", traceback("ValueError: The quantization method nvfp4 is not supported for the current GPU.")),
    ("unsupported_dtype", "permanent", traceback("ValueError: Model architectures ['NewModel'] are not supported for now. Supported: x")),
    ("missing_file", "permanent", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/models/x/config.json'", "")),
    ("missing_file", "permanent", traceback("OSError: /models/x does not appear to have a file named config.json.", "")),
    ("missing_file", "permanent", traceback("RuntimeError: Cannot find any model weights with `/models/x`")),
    ("missing_package", "permanent", traceback("ModuleNotFoundError: No module named 'flash_mla'")),
    (
        "tokenizer",
        "permanent",
        traceback("ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a file", ""),
    ),
    ("tokenizer", "permanent", traceback("ImportError: tiktoken is required to read this file", "")),
    (
        "remote_code",
        "permanent",
        traceback("ValueError: /m needs its own code. Please set `trust_remote_code=True`", ""),
    ),
    (
        "port_in_use",
        "temporary",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 1): address already in use\n",
    ),
    ("watchdog", "temporary", f"{READY}{STAMP}Watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"),
    ("disk_full", "temporary", traceback("OSError: [Errno 28] No space left on device: '/root/.cache/flashinfer/x.so'")),
    ("host_memory", "temporary", traceback("RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory")),
    ("gpu_fault", "temporary", READY + traceback("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")),
    ("gpu_count", "permanent", traceback("RuntimeError: CUDA error: invalid device ordinal")),
    ("driver", "permanent", traceback("RuntimeError: Found no NVIDIA driver on your system.")),
    ("open_files", "permanent", traceback("OSError: [Errno 24] Too many open files")),
    ("terminated", "temporary", f"{READY}{STAMP}SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"),
    ("exception", "temporary", READY + traceback("AssertionError: batch.seq_lens is wrong")),
]


@pytest.mark.parametrize(("cause", "kind", "text"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)])
def test_causes(cause: str, kind: str, text: str) -> None:
    for log in (text, NOISE + text, text.replace(STAMP, "[2026-02-03 04:05:06] ")):
        found = diagnose_text(log, Ending("died", "exit code 0", exit_code=0))
        assert (found.cause, found.kind) == (cause, kind), found
        assert found.advice
        assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("log", "cause", "says"),
    [
        ("kimi-k25-int4-crash-on-first-batch.log", "kernel_resources", "out of resource: shared memory, Required: 106496"),
        ("kimi-k25-int4-small-kv.log", "kv_too_small", "its KV cache holds 4,578 tokens"),
        ("kimi-k2-thinking-decode.log", "none", "the log shows no fault"),
    ],
)
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no {SHARED}: real server logs are kept beside the repository")
def test_logs_of_a_real_host(log: str, cause: str, says: str) -> None:
    found = diagnose(SHARED / log)
    assert found.cause == cause
    assert says in found.sentence


def test_what_was_seen_from_outside_comes_first() -> None:
    log = READY + traceback("RuntimeError: something else")
    assert diagnose_text(log, Ending("too_small", "its KV cache holds 4,578 tokens")).cause == "kv_too_small"
    assert diagnose_text(log, Ending("port_taken", "port 1 is taken by x")).sentence == "port 1 is taken by x"
    assert diagnose_text(log, Ending("wrong_model", "it serves x")).kind == "permanent"


def test_a_kill_from_outside_is_told_from_a_crash() -> None:
    killed = Ending("died", "exit code -9 SIGKILL", exit_code=-9)
    assert diagnose_text(READY, killed).cause == "killed"
    assert diagnose_text(READY + traceback("AssertionError: x"), killed).cause == "killed"
    assert diagnose_text(READY + traceback(OOM), killed).cause == "memory_runtime"
    line = f"{STAMP}Subprocess scheduler_0 (pid=123) crashed with exit code -9. Triggering SIGQUIT for cleanup...\n"
    assert diagnose_text(READY + line, Ending("died", "exit code 1", exit_code=1)).cause == "killed"


def test_the_last_cause_is_not_the_echo_of_its_peers() -> None:
    log = READY + traceback("KeyError: 'layer'") + traceback("BrokenPipeError: [Errno 32] Broken pipe") + traceback("EOFError")
    assert diagnose_text(log, None).sentence == "SGLang failed with KeyError: 'layer'"


def test_an_unknown_end_shows_the_last_telling_lines() -> None:
    log = f"{READY}{STAMP}about to do something\n{NOISE}"
    found = diagnose_text(log, Ending("died", "exit code 3", exit_code=3))
    assert found == Diagnosis(
        "died",
        "the server ended by itself (exit code 3); its log ends: The server is fired up and ready to roll! | about to do something |"
        " OpenAI Responses API disabled: init failed (ModuleNotFoundError: No module named 'openai_harmony')",
        "see the server log",
        "temporary",
    )
    assert diagnose_text("", Ending("silent", "shows no sign of progress since 900 s")).sentence.endswith("its log is empty")


def test_a_traceback_is_read_through_the_lines_of_other_ranks() -> None:
    log = (
        f"{STAMP}Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "[2026-02-03 04:05:06 TP5] Decode batch, #running-req: 1\n"
        "    x()\n"
        "pkg.errors.ShapeError: first\nsecond line of the message\n\nnot part of it\n"
    )
    (exception,) = parse_log(log).exceptions
    assert exception.text == "pkg.errors.ShapeError: first second line of the message"


def test_a_traceback_that_breaks_off_gives_nothing() -> None:
    assert parse_log(f'{STAMP}Traceback (most recent call last):\n  File "a.py", line 1\n').exceptions == []


def test_long_logs_are_read_at_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("the beginning\n" + "Decode batch\n" * 900_000 + traceback("KeyError: 'end'"))
    assert log.stat().st_size > 10 << 20
    text = read_log(log)
    assert len(text) < 6 << 20
    assert text.startswith("the beginning")
    assert diagnose(log).sentence == "SGLang failed with KeyError: 'end'"


def test_lines_for_people_are_without_stamp_and_noise() -> None:
    assert clean_line("[2026-02-03 04:05:06 TP0] Load weight begin.") == "Load weight begin."
    assert clean_line('[2026-02-03 04:05:06] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503') is None
    assert clean_line("Loading safetensors checkpoint shards:  92% Completed | 59/64 [00:07<00:00, 23.42it/s]") is None
