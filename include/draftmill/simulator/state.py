"""What the simulated server is: identity, condition, and the numbers it reports about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from draftmill.simulator.driver import Driver
from draftmill.simulator.protocol import VERSION
from draftmill.simulator.workload import Workload


@dataclass
class Seen:
    """What tests ask afterwards: how often each prompt was answered, and how many requests were ever open at once."""

    requests: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    outstanding: int = 0
    peak_outstanding: int = 0
    aborts_asked: int = 0


@dataclass
class ServerState:
    """The server behind the port.

    up: the process listens. starting: it listens and does not answer yet. draining: it was told to end.
    model_path: as reported; another one while the fault `other_model` is at work.
    """

    driver: Driver
    workload: Workload
    model_path: str = "simulated/model"
    api_key: str | None = None
    up: bool = False
    starting: bool = False
    draining: bool = False
    queue_full: bool = False
    max_queued: int | None = None
    other_model: str | None = None
    keep_alive_s: float | None = None
    seen: Seen = field(default_factory=Seen)

    @property
    def healthy(self) -> bool:
        """What /health says, which is not always the truth: a silent server answers 200."""
        return not (self.starting or self.draining or self.driver.has_frozen("scheduler_dead"))

    @property
    def refuses(self) -> bool:
        """Whether the queue takes no more requests."""
        return self.queue_full or (self.max_queued is not None and self.driver.engine.waiting >= self.max_queued)

    def model_info(self) -> dict[str, Any]:
        """Body of /model_info."""
        path = self.other_model or self.model_path
        return {
            "model_path": path,
            "served_model_name": path,
            "tokenizer_path": path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "load_format": "auto",
            "reasoning_parser": None,
            "tool_call_parser": None,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "simulated",
            "architectures": ["SimulatedForCausalLM"],
        }

    def server_info(self) -> dict[str, Any]:
        """Body of /server_info: arguments, capacity, version."""
        profile = self.driver.profile
        path = self.other_model or self.model_path
        return {
            "model_path": path,
            "served_model_name": path,
            "tp_size": 8,
            "kv_cache_dtype": "auto",
            "context_length": profile.context_length,
            "max_running_requests": profile.max_running,
            "max_queued_requests": self.max_queued,
            "status": "ready",
            "max_total_num_tokens": profile.kv_tokens,
            "max_req_input_len": min(profile.context_length, profile.kv_tokens) - 6,
            "internal_states": [
                {"memory_usage": {"token_capacity": profile.kv_tokens}, "last_gen_throughput": self.driver.engine.throughput}
            ],
            "version": VERSION,
        }

    def loads(self) -> dict[str, Any]:
        """Body of /v1/loads."""
        engine, profile = self.driver.engine, self.driver.profile
        load = {
            "timestamp": self.driver.now(),
            "dp_rank": 0,
            "num_running_reqs": engine.running,
            "num_waiting_reqs": engine.waiting,
            "num_used_tokens": engine.used,
            "num_total_tokens": engine.used,
            "max_total_num_tokens": profile.kv_tokens,
            "max_running_requests": profile.max_running,
            "token_usage": round(engine.used / profile.kv_tokens, 4),
            "gen_throughput": round(engine.throughput, 2),
            "cache_hit_rate": 0.0,
            "utilization": round(engine.used / profile.kv_tokens, 4),
        }
        return {"timestamp": datetime.now(timezone.utc).isoformat(), "version": VERSION, "loads": [load]}

    def metrics(self) -> str:
        """Body of /metrics, in Prometheus' text format."""
        engine, profile, totals = self.driver.engine, self.driver.profile, self.driver.totals()
        gauges = {
            "num_running_reqs": engine.running,
            "num_queue_reqs": engine.waiting,
            "num_used_tokens": engine.used,
            "token_usage": engine.used / profile.kv_tokens,
            "gen_throughput": engine.throughput,
            "max_total_num_tokens": profile.kv_tokens,
            "num_retracted_reqs": totals.retracted,
        }
        counters = {
            "prompt_tokens_total": totals.prompt_tokens,
            "generation_tokens_total": totals.decoded_tokens,
            "num_requests_total": totals.finished,
            "num_aborted_requests_total": totals.aborted,
            "num_retracted_requests_total": totals.retracted,
        }
        label = f'{{model_name="{self.other_model or self.model_path}"}}'
        lines = []
        for kind, group in (("gauge", gauges), ("counter", counters)):
            for name, value in group.items():
                lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{label} {float(value)}"]
        return "\n".join(lines) + "\n"
