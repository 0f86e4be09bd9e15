"""What a server says about its load. Names vary between SGLang versions; whatever is not said is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ServerLoad:
    """One look at the server, all its users together.

    running, waiting: requests in the batch and in the queue. used_tokens, capacity_tokens: of the KV cache. tokens_per_s: generation
    throughput. generated, retracted: totals since the server started, of tokens and requests.
    """

    running: float | None = None
    waiting: float | None = None
    used_tokens: float | None = None
    capacity_tokens: float | None = None
    tokens_per_s: float | None = None
    generated: float | None = None
    retracted: float | None = None

    def merged(self, other: ServerLoad) -> ServerLoad:
        """This look, completed by another one of about the same time."""
        return ServerLoad(**{name: mine if (mine := getattr(self, name)) is not None else getattr(other, name) for name in _NAMES})


_NAMES = tuple(ServerLoad.__dataclass_fields__)

_LOADS_NAMES = {
    "running": ("num_running_reqs",),
    "waiting": ("num_waiting_reqs", "num_queue_reqs"),
    "used_tokens": ("num_used_tokens", "num_tokens"),
    "capacity_tokens": ("max_total_num_tokens",),
    "tokens_per_s": ("gen_throughput",),
}
_METRIC_NAMES = {
    "running": ("num_running_reqs",),
    "waiting": ("num_queue_reqs", "num_waiting_reqs"),
    "used_tokens": ("num_used_tokens", "kv_used_tokens"),
    "capacity_tokens": ("max_total_num_tokens",),
    "tokens_per_s": ("gen_throughput",),
    "generated": ("generation_tokens_total", "generation_tokens"),
    "retracted": ("num_retracted_requests_total", "num_retractions_total", "num_retractions_sum"),
}


def from_loads(body: Any) -> ServerLoad | None:
    """From /v1/loads (`{"loads": [...]}`) or the older /get_load (a list): an object for each data-parallel rank, which are summed."""
    entries = body.get("loads") if isinstance(body, dict) else body
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if not entries:
        return None
    numbers: dict[str, float] = {}
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, int | float):
                numbers[name] = numbers.get(name, 0.0) + value
    if "num_running_reqs" not in numbers and "num_reqs" in numbers:
        numbers["num_running_reqs"] = numbers["num_reqs"] - numbers.get("num_waiting_reqs", 0.0)
    return _pick(numbers, _LOADS_NAMES)


def from_metrics(text: str) -> ServerLoad | None:
    """From /metrics in Prometheus' text format: `sglang:NAME{labels} VALUE`; values of several label sets are summed."""
    numbers: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("sglang"):
            continue
        name, _, value = line[7:].rpartition(" ")
        name = name.partition("{")[0]
        try:
            numbers[name] = numbers.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return _pick(numbers, _METRIC_NAMES) if numbers else None


def _pick(numbers: dict[str, float], names: dict[str, tuple[str, ...]]) -> ServerLoad:
    return ServerLoad(**{field: next((numbers[name] for name in choices if name in numbers), None) for field, choices in names.items()})
