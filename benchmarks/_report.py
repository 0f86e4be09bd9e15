"""From figures to benchmarks/results.json and docs/performance.md."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

LIBRARIES = ("aiohttp", "orjson", "numpy", "pyarrow", "transformers", "tokenizers", "pydantic", "apache-airflow")

MEANINGS: list[tuple[str, str, str]] = [
    (r"campaign\..*\.efficiency", "hours of the oracle over hours of draftmill", ">= 0.95"),
    (r"campaign\..*\.speedup_vs_static", "hours of the static plan (150 short, 32 long) over hours of draftmill", "> 1"),
    (r"campaign\..*\.ratio_to_best_static", "hours of draftmill over hours of the best static numbers of a sweep", "<= 1.03"),
    (r"campaign\..*\.budget_error_max_pct", "largest distance from its budget of a data set, draftmill, %", "<= 1"),
    (r"campaign\..*\.static_budget_error_max_pct", "the same of the static plan, %", ""),
    (r"campaign\..*\.best_static_budget_error_max_pct", "the same of the best static numbers, %", ""),
    (r"campaign\..*\.hours", "hours of draftmill, 80 million completion tokens", ""),
    (r"campaign\..*\.oracle_hours", "hours with every length known beforehand, in the same order", ""),
    (r"campaign\..*\.bound_hours", "hours that no admission can beat, even one that reorders", ""),
    (r"campaign\..*\.static_hours", "hours of the static plan", ""),
    (r"campaign\..*\.best_static_hours", "hours of the best static numbers", ""),
    (r"campaign\..*\.kv_use", "mean share of the KV cache in use, draftmill", ""),
    (r"campaign\..*\.restart_efficiency", "efficiency on a server that decodes a retracted request all over again", ""),
    (r"campaign\..*\.simulated_in_s", "seconds the simulation of draftmill took", ""),
    (r"client\.throughput_ratio_.*", "requests a second of our client over those of a bare aiohttp loop", ">= 0.8"),
    (r"client\.requests_per_s_.*", "requests a second of our client", ""),
    (r"client\.bare_requests_per_s_.*", "requests a second of the bare loop", ""),
    (r"client\.cpu_s_per_1000_.*", "CPU seconds of our client per 1,000 requests", ""),
    (r"client\.bare_cpu_s_per_1000_.*", "CPU seconds of the bare loop per 1,000 requests", ""),
    (r"generation\.peak_rss_mb_2m_prompts", "peak memory of a generation job with 2,000,000 prompts, MB", "< 300"),
    (r"generation\.peak_rss_mb_200k_prompts", "the same with 200,000 prompts, MB", ""),
    (r"generation\.rss_growth_mb_.*", "most memory in the second half of that job over the most in its first half, MB", "< 10"),
    (r"generation\.requests_per_s", "answers a second of a whole generation job, from prompts file to durable journal", ""),
    (r"journal\.resume_read_ratio", "time to open a 2 GB journal over time to read the file once", "<= 3"),
    (r"journal\.resume_s", "seconds to open the 2 GB journal", ""),
    (r"journal\.resume_peak_rss_mb", "peak memory of a process that opens it, MB", ""),
    (r"journal\.rows_per_s", "rows of 1,500 ids appended a second, made durable", ""),
    (r"prompts\.first_ready_s", "seconds to the first prompt of a source of 5,000,000 rows", "< 20"),
    (r"prompts\.all_ready_s", "seconds until all prompts that the sample asks for are written", ""),
    (r"prompts\.cpu_s", "processor seconds of that, all processes", ""),
    (r"prompts\.peak_rss_mb", "peak memory of the preparation, all processes, MB", "< 500"),
    (r"prompts\.per_s_per_core", "prompts rendered a second by one process", ">= 2500"),
    (r"prompts\.tokenizer_ratio", "that rate over the rate of the tokenizer alone on the same texts", ">= 0.8"),
    (r"corpus\.peak_rss_mb", "peak memory of records, merge and exports of 80 million tokens, all processes, MB", "< 1500"),
    (r"corpus\.read_write_ratio", "their speed over that of a bare read-orjson-write loop over the same rows", ">= 0.5"),
    (r"corpus\.vocab_mapping_s", "seconds to build the draft-vocabulary mapping for 163,840 ids", "< 10"),
    (r"airflow\.dag_parse_s", "seconds Airflow's DAG processor takes to parse and serialise the DAG file", "< 1"),
]
"""(pattern of the figure's name, what it says, what it must be)."""

_INTRODUCTION = """\
# Performance

Written by `make bench`, or by `python -m benchmarks --keep NAME` for one benchmark; the same in `benchmarks/results.json`. Ratios compare
things that were measured side by side in one run, so they carry over to other machines; seconds and megabytes are of the machine below.

The `campaign` figures are of a simulated host: the timing model of `draftmill/simulator/profile.py` and the data sets of `synth_100k`,
ten million completion tokens each, with answers that are log-normal and cut at their class's maximum. What runs against it is the
product's own generation code, with all numbers in flight on `auto`, on a clock that jumps from event to event. The policies beside it get
the same answers, prompt by prompt:

- *static*: 150 (short) or 32 (long) requests in flight, one data set after the other; at the budget nothing more is sent, and what is out
  is awaited and kept.
- *best static*: the same, with the numbers of a sweep over 20 values that are best on that host, for each class.
- *oracle*: knows the length of every answer beforehand. It keeps to the order that generation has to keep to (data sets, two of them
  open at a time, and the seeded order within each), sends each request at the first step from which on the cache will never overflow, and
  stops at the answer nearest to the budget.
- The *bound* is not a policy: it is the time in which the same answers would be generated if the cache were exactly full at every step.

A retracted request keeps its tokens and its prefill is done again, as in SGLang's source. `restart_efficiency` is for a server that
would decode it all over again.
"""


def _explained(name: str) -> tuple[str, str]:
    for pattern, meaning, wanted in MEANINGS:
        if re.fullmatch(pattern, name):
            return meaning, wanted
    return "", ""


def _meets(value: float, wanted: str) -> str:
    """Whether the value is as wanted: yes, no, or nothing where nothing is wanted."""
    if not wanted:
        return ""
    sign, limit = wanted.split()
    compare = {">=": value >= float(limit), "<=": value <= float(limit), ">": value > float(limit), "<": value < float(limit)}
    return "yes" if compare[sign] else "NO"


def _shown(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.3f}"


def table(figures: dict[str, float]) -> str:
    """All figures as a Markdown table."""
    rows = []
    for name, value in sorted(figures.items()):
        meaning, wanted = _explained(name)
        rows.append(f"| `{name}` | {_shown(value)} | {wanted} | {_meets(value, wanted)} | {meaning} |")
    return "\n".join(["| figure | value | wanted | met | what it is |", "|---|---:|---|---|---|", *rows])


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gb": round(memory / 1e6, 1)}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def versions() -> dict[str, str]:
    """Python and the libraries that matter."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def write_report(taken: dict[str, dict[str, float]], seconds: dict[str, float], results: Path, page: Path, keep: bool) -> None:
    """Write results.json and the page. taken: figures by module. seconds: how long each took. keep: what earlier runs found of other
    modules stays; the page says when each was run."""
    date, load = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), round(os.getloadavg()[2], 1)
    runs = json.loads(results.read_text())["runs"] if keep and results.exists() else {}
    runs |= {
        name: {"date": date, "took_s": round(seconds[name]), "load": load, "versions": versions(), "figures": dict(sorted(figures.items()))}
        for name, figures in taken.items()
    }
    figures = {name: value for run in runs.values() for name, value in run["figures"].items()}
    value = {"figures": dict(sorted(figures.items())), "machine": machine(), "runs": dict(sorted(runs.items()))}
    results.write_text(json.dumps(value, indent=2) + "\n")
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"{_INTRODUCTION}\n{_measured(value)}\n\n{table(figures)}\n")


def _measured(value: dict[str, Any]) -> str:
    host = value["machine"]
    of = ", ".join(f"{name} {version}" for name, version in versions().items())
    rows = [f"| {name} | {run['date']} | {run['took_s']} | {run['load']} |" for name, run in value["runs"].items()]
    header = ["| benchmark | at (UTC) | took, s | load average over the 15 minutes before its end |", "|---|---|---:|---:|"]
    where = f"Measured on {host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB. {of[0].upper()}{of[1:]}."
    return "\n".join([where, "", *header, *rows])
