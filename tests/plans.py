"""Plans for tests: small, valid, and overridable field by field."""

from __future__ import annotations

from typing import Any

from draftmill.spec.plan import DatasetPlan, Plan


def make_dataset(name: str = "alpha", **changes: Any) -> DatasetPlan:
    values: dict[str, Any] = {
        "name": name,
        "sources": [{"path": f"samples/{name}.jsonl"}],
        "adapter": "messages",
        "length_class": "short",
        "licence": "MIT",
        "expected_tokens": 100,
        "budget_tokens": 10_000,
        "max_new_tokens": 512,
    } | changes
    return DatasetPlan.model_validate(values, strict=False)


def make_plan(*datasets: DatasetPlan, profile: dict[str, Any] | None = None, **changes: Any) -> Plan:
    server = {"device": "cpu", "model_path": "models/tiny", "port": 0} | (profile or {})
    values: dict[str, Any] = {
        "campaign": "test",
        "seed": 7,
        "server": {"name": "tiny-cpu", "profile": server},
        "sampling": {"temperature": 1.0, "top_p": 1.0},
        "special_token_text": "plain",
        "datasets": datasets or (make_dataset(),),
        "datasets_at_once": 2,
        "quality": {},
        "corpus": {},
    } | changes
    return Plan.model_validate(values, strict=False)
