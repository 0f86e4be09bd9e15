"""The survey's answer fits the model that Airflow reads it with, and tells the last rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.files import write_json
from draftmill.generation.survey import run
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.spec.results import SurveyResult
from tests.plans import make_dataset, make_plan


def survey(root: Path) -> SurveyResult:
    plan = make_plan(make_dataset("alpha"), make_dataset("beta", budget_tokens=500))
    ctx = StepContext(plan, Workspace(root), lambda message, **numbers: None)
    return SurveyResult.model_validate(run(ctx))


def test_an_empty_workspace(tmp_path: Path) -> None:
    found = survey(tmp_path)
    assert [(entry.name, entry.left_tokens, entry.prompts, entry.tokens_per_s) for entry in found.datasets] == [
        ("alpha", 10_000, None, None),
        ("beta", 500, None, None),
    ]
    assert found.left_tokens == found.totals["left_tokens"] == 10_500


@pytest.mark.parametrize(
    ("result", "rate"),
    [({"new_tokens": 50, "tokens_per_s": 12.5}, 12.5), ({"new_tokens": 0, "tokens_per_s": 0.0}, None), (None, None)],
)
def test_the_last_rate_is_that_of_a_job_that_generated_something(
    tmp_path: Path, result: dict[str, float] | None, rate: float | None
) -> None:
    write_json(
        Workspace(tmp_path).campaign("test").job("generate", "alpha") / "result.json", {"attempt": 1, "exit_code": 0, "result": result}
    )
    assert survey(tmp_path).datasets[0].tokens_per_s == rate
