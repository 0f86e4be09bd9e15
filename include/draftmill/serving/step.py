"""The steps `launch` and `stop-server`."""

from __future__ import annotations

import time
from typing import Any

from draftmill.errors import PermanentError
from draftmill.jobs.step import StepContext
from draftmill.serving.folder import ServerFolder
from draftmill.serving.lease import Host, LeasedServer, hold
from draftmill.serving.leases import LeaseNote, held_leases
from draftmill.serving.need import capacity_fault, concurrency_note
from draftmill.serving.stopping import is_clean, stop_server
from draftmill.spec.results import LaunchResult, StopServerResult


def _nothing_left(ctx: StepContext) -> bool:
    from draftmill.generation.survey import run

    return all(entry["left_tokens"] == 0 for entry in run(ctx)["datasets"])


def launch(ctx: StepContext) -> dict[str, Any]:
    """Bring the server up and check that it is of use to the campaign. It stays; its idle time counts from here.

    Returns a LaunchResult. Raises as `hold` does, and PermanentError where the KV cache is too small for the campaign.
    """
    if _nothing_left(ctx):
        ctx.progress("nothing is left to generate: the server is not started")
        return LaunchResult(needed=False).model_dump()
    started = time.monotonic()
    with hold(ctx.workspace, ctx.plan.server, f"{ctx.plan.campaign}/launch", ctx.stop, ctx.progress) as source:
        endpoint = source.wait()
        fault = capacity_fault(ctx.plan, endpoint)
        note = concurrency_note(ctx.plan, endpoint)
        if fault:
            _stop_if_unused(ctx, source)
            raise PermanentError(fault)
    if note:
        ctx.progress(note)
    ctx.progress(
        f"server {ctx.plan.server.name}: ready, SGLang {endpoint.version}, {endpoint.kv_capacity_tokens or 0:,} tokens of KV cache"
    )
    return LaunchResult(
        needed=True,
        version=endpoint.version,
        model_path=endpoint.model_path,
        served_model_name=endpoint.served_model_name,
        kv_capacity_tokens=endpoint.kv_capacity_tokens,
        context_length=endpoint.context_length,
        fingerprint=endpoint.fingerprint,
        incarnation=endpoint.incarnation,
        seconds=round(time.monotonic() - started, 1),
    ).model_dump()


def _stop_if_unused(ctx: StepContext, source: LeasedServer) -> None:
    """Free the GPUs of a server that is of no use, unless somebody else uses it."""
    with source.host.admission():
        source.host.release()
        if not held_leases(ServerFolder.of(ctx.workspace).leases):
            stop_server(ctx.workspace)


def _of_another_campaign(note: LeaseNote, campaign: str) -> bool:
    return note.owner.partition("/")[0] != campaign


def stop(ctx: StepContext) -> dict[str, Any]:
    """Stop the server and verify it, unless another campaign uses it. Returns a StopServerResult.

    PermanentError names what survived. Without a server this is a quick no-op.
    """
    if is_clean(ctx.workspace):
        return StopServerResult(stopped=True, reason="no server was running").model_dump()
    started = time.monotonic()
    host = Host(ctx.workspace, ctx.plan.server, f"{ctx.plan.campaign}/stop-server", ctx.stop, ctx.progress)
    with host.admission():
        leases = held_leases(ServerFolder.of(ctx.workspace).leases)
        others = [str(note) for note in leases if _of_another_campaign(note, ctx.plan.campaign)]
        if others:
            reason = f"left running for {', '.join(others)}"
            ctx.progress(f"server: {reason}")
            return StopServerResult(stopped=False, reason=reason).model_dump()
        ctx.progress("server: draining and stopping")
        stop_server(ctx.workspace)
    reason = "stopped; no process is left, the port is free, GPU memory is back"
    return StopServerResult(stopped=True, reason=reason, seconds=round(time.monotonic() - started, 1)).model_dump()
