"""What a campaign needs of a server, in tokens of KV cache."""

from __future__ import annotations

from draftmill.serving.endpoint import Endpoint
from draftmill.spec.plan import DatasetPlan, Plan


def longest_request(dataset: DatasetPlan) -> int:
    """Tokens of the longest request: prompt and answer. A data set without a limit on its prompts counts with its answers alone."""
    return (dataset.max_prompt_tokens or 0) + dataset.max_new_tokens


def capacity_fault(plan: Plan, endpoint: Endpoint) -> str | None:
    """A sentence where the KV cache cannot hold the longest request of the campaign: such a request would never be served."""
    capacity = endpoint.kv_capacity_tokens
    largest = max(plan.datasets, key=longest_request)
    if capacity is None or capacity >= longest_request(largest):
        return None
    return (
        f"server {plan.server.name}: its KV cache holds {capacity:,} tokens, and one request of {largest.name} may need"
        f" {longest_request(largest):,}; raise memory_fraction, use a smaller KV type or more GPUs, or lower max_new_tokens"
        f" of class {largest.length_class}"
    )


def concurrency_note(plan: Plan, endpoint: Endpoint) -> str | None:
    """How many requests the KV cache holds at once, where that is less than the plan wants in flight."""
    capacity = endpoint.kv_capacity_tokens
    if capacity is None:
        return None
    mean = max(dataset.expected_tokens for dataset in plan.datasets)
    fits = capacity // mean
    wanted = max((dataset.in_flight for dataset in plan.datasets if dataset.in_flight != "auto"), default=0)
    if fits >= wanted:
        return None
    return f"the KV cache of {capacity:,} tokens holds about {fits} answers of {mean:,} tokens at once, and {wanted} are wanted in flight"
