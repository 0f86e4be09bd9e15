"""The server's state for people and machines, without its key."""

from __future__ import annotations

import time
from typing import Any

from draftmill.layout import Workspace
from draftmill.serving.folder import ServerFolder, ServerState, read_state
from draftmill.serving.ground import leftovers
from draftmill.serving.leases import held_leases
from draftmill.serving.stopping import supervisor_process


def facts(workspace: Workspace) -> dict[str, Any]:
    """What is known about the server: its state, whether its supervisor lives, its processes and the leases."""
    folder = ServerFolder.of(workspace)
    state = read_state(folder) or ServerState(state="stopped", message="no server was ever started here")
    return {
        **state.model_dump(mode="json", exclude={"api_key", "mark", "boot_id", "request", "supervisor", "processes", "leader"}),
        "supervised": supervisor_process(workspace).alive(),
        "pids": leftovers(state, folder),
        "leases": [str(note) for note in held_leases(folder.leases)],
    }


def _state_line(value: dict[str, Any]) -> str:
    state = value["state"]
    if not value["supervised"] and state not in ("failed", "stopped"):
        left = "its processes live on" if value["pids"] else "nothing of it is left"
        return f"lost: its supervisor is gone, {left}; the next launch or stop-server cleans up"
    since = f", for {time.time() - value['ready_at']:,.0f} s" if state == "ready" and value["ready_at"] else ""
    return f"{state}{since}: {value['message']}" if value["message"] != state else f"{state}{since}"


def describe(value: dict[str, Any]) -> str:
    """`facts` as lines for a terminal."""
    capacity = value["kv_capacity_tokens"]
    rows = [
        ("state", _state_line(value)),
        ("profile", value["server"]),
        ("model", value["model_path"]),
        ("version", f"SGLang {value['version']}" if value["version"] else ""),
        ("address", value["base_url"]),
        ("KV cache", f"{capacity:,} tokens" if capacity else ""),
        ("incarnation", f"{value['incarnation']}, restarted {value['restarts']} times by this supervisor" if value["incarnation"] else ""),
        ("processes", " ".join(map(str, value["pids"]))),
        ("leases", ", ".join(value["leases"]) or "none"),
        ("log", value["log"]),
    ]
    last = value["last"]
    if last:
        rows.append(("last fault", f"incarnation {last['incarnation']}: {last['sentence']}"))
        rows.append(("advice", last["advice"]))
    return "\n".join(f"{name:<12} {text}" for name, text in rows if text)
