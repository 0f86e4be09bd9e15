"""Hours of the shipped campaign on each simulated host: draftmill beside an oracle, the static plan, and the best static numbers.

    python -m benchmarks campaign_hours

draftmill is the product's own generation code in virtual time (draftmill.simulator.campaign), with every ceiling on `auto`. All policies
get the same answers, prompt by prompt. Hosts are simulated in parallel, one process each. docs/performance.md says what the policies are.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks import ROOT

if TYPE_CHECKING:
    from draftmill.simulator.policies import Work
    from draftmill.spec.plan import Plan

CAMPAIGN = "synth_100k"
HOSTS = ("rtx6000-bf16", "rtx6000-fp8", "h200")
"""The longest campaign first."""


def make_plan(**changes: Any) -> Plan:
    """The shipped campaign with every ceiling on `auto`; `changes` are run parameters."""
    from draftmill.spec.build import build_plan
    from draftmill.spec.load import Config
    from draftmill.spec.params import parse_params

    plan = build_plan(Config(ROOT / "include" / "config"), parse_params({"campaign": CAMPAIGN, **changes}))
    return plan.model_copy(update={"datasets": tuple(entry.model_copy(update={"in_flight": "auto"}) for entry in plan.datasets)})


def measure_draftmill(plan: Plan, name: str, restart_retracted: bool) -> dict[str, float]:
    """Hours, budget error and KV use of the product on one host."""
    from draftmill.simulator.campaign import simulate
    from draftmill.simulator.material import Material
    from draftmill.simulator.profile import host

    profile = dataclasses.replace(host(name), restart_retracted=restart_retracted)
    run = simulate(Material.of(plan), profile, lambda line: print(f"{name}: {line}", flush=True))
    worst = max(abs(run.budget_error(entry)) for entry in plan.datasets)
    return {"hours": run.seconds / 3600, "error_pct": 100 * worst, "kv_use": run.kv_use, "took_s": run.took_s}


def measure_others(work: Sequence[Work], name: str, at_once: int) -> dict[str, float]:
    """Hours and budget errors of the other policies on one host."""
    from draftmill.simulator.compare import compare
    from draftmill.simulator.profile import host

    result = compare(work, host(name), at_once)
    print(f"{name}: best static numbers {result.best_numbers}", flush=True)
    return {
        "oracle_hours": result.oracle.seconds / 3600,
        "bound_hours": result.bound_s / 3600,
        "static_hours": result.static.seconds / 3600,
        "best_static_hours": result.best_static.seconds / 3600,
        "static_error_pct": 100 * result.worst_error(result.static),
        "best_static_error_pct": 100 * result.worst_error(result.best_static),
    }


def figures_of(name: str, ours: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """The figures of one host."""
    hours = ours["hours"]
    values = {
        "hours": hours,
        "oracle_hours": others["oracle_hours"],
        "bound_hours": others["bound_hours"],
        "static_hours": others["static_hours"],
        "best_static_hours": others["best_static_hours"],
        "efficiency": others["oracle_hours"] / hours,
        "speedup_vs_static": others["static_hours"] / hours,
        "ratio_to_best_static": hours / others["best_static_hours"],
        "budget_error_max_pct": ours["error_pct"],
        "static_budget_error_max_pct": others["static_error_pct"],
        "best_static_budget_error_max_pct": others["best_static_error_pct"],
        "kv_use": ours["kv_use"],
        "simulated_in_s": ours["took_s"],
    }
    return {f"campaign.{name}.{key}": round(value, 4) for key, value in values.items()}


def run(**changes: Any) -> dict[str, float]:
    """All figures."""
    from draftmill.simulator.compare import work_of
    from draftmill.simulator.material import Material

    plan = make_plan(**changes)
    began = time.monotonic()
    figures: dict[str, float] = {}
    with ProcessPoolExecutor(min(len(HOSTS), os.cpu_count() or 1), multiprocessing.get_context("spawn")) as pool:
        ours = {name: pool.submit(measure_draftmill, plan, name, False) for name in HOSTS}
        restarting = {name: pool.submit(measure_draftmill, plan, name, True) for name in HOSTS[:1]}
        work = work_of(Material.of(plan))
        others = {name: pool.submit(measure_others, work, name, plan.datasets_at_once) for name in HOSTS}
        for name in HOSTS:
            figures |= figures_of(name, ours[name].result(), others[name].result())
        for name, result in restarting.items():
            figures[f"campaign.{name}.restart_efficiency"] = round(others[name].result()["oracle_hours"] / result.result()["hours"], 4)
    print(f"all hosts simulated in {time.monotonic() - began:.0f} s")
    return figures
