"""The step `preflight`: is this host fit for the campaign? In seconds, all faults at once, each with what, where and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from draftmill.errors import DraftmillError, PermanentError, TemporaryError
from draftmill.jobs.detached import code_root
from draftmill.jobs.step import StepContext
from draftmill.serving import checks
from draftmill.serving.build import base_environment


@dataclass
class Report:
    """What was found. `passing` faults may go by themselves, the others need a person."""

    facts: dict[str, Any] = field(default_factory=dict)
    standing: list[str] = field(default_factory=list)
    passing: list[str] = field(default_factory=list)

    def run(self, name: str, check: Callable[[], tuple[Any, list[str]]], *, passing: bool = False) -> None:
        """Run one check, which gives a fact and its faults. A fault it raises counts like one it gives."""
        try:
            self.facts[name], faults = check()
        except PermanentError as error:
            self.standing.append(str(error))
        except DraftmillError as error:
            self.passing.append(str(error))
        else:
            (self.passing if passing else self.standing).extend(faults)

    def conclude(self) -> dict[str, Any]:
        """The facts; TemporaryError where all faults may go by themselves, else PermanentError, with all of them."""
        faults = self.standing + self.passing
        if not faults:
            return self.facts
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        text = f"preflight found {count}: " + " ".join(f"({number}) {fault}." for number, fault in enumerate(faults, 1))
        raise PermanentError(text) if self.standing else TemporaryError(text)


def run(ctx: StepContext) -> dict[str, Any]:
    """Check the host for the plan. Returns the facts found; raises with every fault where there is one."""
    profile, workspace = ctx.plan.server.profile, ctx.workspace
    env = base_environment(workspace.secrets, code_root()) | profile.env
    python = str(workspace.resolve(profile.python)) if profile.python else sys.executable
    report = Report()
    report.run("python", checks.python)
    report.run("sglang", lambda: checks.sglang(ctx.plan.server, workspace, python, env))
    report.run("model", lambda: checks.model(profile, workspace, env))
    if report.facts.get("model") or profile.tokenizer_path:
        report.run("tokenizer", lambda: checks.tokenizer(profile, workspace))
    report.run("disk", lambda: checks.disk(ctx.plan, workspace), passing=True)
    report.run("memory", checks.memory)
    report.run("server", lambda: checks.own_server(workspace))
    if profile.device != "cpu":
        report.run("gpus", lambda: checks.gpu_count(profile, env))
        report.run("gpu_memory", lambda: checks.gpu_memory(profile, env, workspace), passing=True)
    report.run("ports", lambda: checks.ports(profile, workspace), passing=True)
    report.run("session", checks.session)
    report.run("clock", lambda: checks.clock(workspace))
    ctx.progress("preflight: " + ("all is well" if not report.standing + report.passing else "faults found"))
    return report.conclude()
