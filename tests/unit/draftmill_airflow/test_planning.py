"""Parameters to an order, and the table of what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.spec.load import Config
from draftmill.spec.results import DatasetSurvey, SurveyResult
from draftmill_airflow.form import form
from draftmill_airflow.hosts import HostDag
from draftmill_airflow.order import Order
from draftmill_airflow.planning import eta, make_order, plan_table
from draftmill_airflow.tables import show

CONFIG = Config(Path(__file__).resolve().parents[3] / "include" / "config")
DAG = HostDag("generate_drafter_data", CONFIG.campaign("synth_100k"))
EMPTY = {"campaign": None, "datasets": [], "tokens_per_dataset": None, "server": "", "merge_partial": None, "dry_run": False}


def test_an_untouched_form_means_the_default_campaign() -> None:
    order = make_order(CONFIG, DAG, EMPTY)
    assert (order.plan.campaign, order.conn_id, len(order.plan.datasets), order.dry_run) == ("synth_100k", "gpu_host", 8, False)


def test_parameters_are_understood_as_they_are_meant() -> None:
    order = make_order(CONFIG, DAG, EMPTY | {"datasets": "B1_glaive, B8_sweagent", "tokens_per_dataset": "2.5M", "datasets_at_once": 1.0})
    assert order.plan.names == ["B8_sweagent", "B1_glaive"]
    assert {dataset.budget_tokens for dataset in order.plan.datasets} == {2_500_000}
    assert order.plan.datasets_at_once == 1


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"campaign": "x; touch /tmp/pwned"}, "parameter campaign: "),
        ({"campaign": "nope"}, "campaign: 'nope' is not a campaign file"),
        ({"datasets": ["B1_glaiv"]}, "parameter datasets: 'B1_glaiv' is unknown; did you mean B1_glaive?"),
        ({"datasets": ["B1_glaive", "B1_glaive"]}, "parameter datasets: names B1_glaive more than once"),
        ({"tokens_per_dataset": 0}, "parameter tokens_per_dataset: "),
        ({"server": "none-such"}, "parameter server: 'none-such' is unknown"),
        ({"tokens": 5}, "parameter tokens: unknown key"),
        ({"merge_partial": "perhaps"}, "parameter merge_partial: "),
    ],
)
def test_refusals_name_the_field_and_are_not_tried_again(params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AirflowFailException) as caught:
        make_order(CONFIG, DAG, EMPTY | params)
    assert str(caught.value).startswith(sentence)


def test_parameters_as_airflow_hands_them_over_are_understood() -> None:
    params = ParamsDict(form(CONFIG, DAG.campaign))
    assert make_order(CONFIG, DAG, params) == make_order(CONFIG, DAG, EMPTY) == make_order(CONFIG, DAG, {})


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.text() | st.none())
    | st.dictionaries(st.text(), st.none())
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted(EMPTY)) | st.text(), VALUES, max_size=3))
def test_any_parameters_make_an_order_that_travels_or_are_refused_for_good(params: dict[str, Any]) -> None:
    try:
        order = make_order(CONFIG, DAG, params)
    except AirflowFailException as error:
        message = str(error)
        assert "\n" not in message
    else:
        assert Order.model_validate(orjson.loads(orjson.dumps(order.model_dump(mode="json"))), strict=False) == order


def test_the_table_of_what_is_left() -> None:
    order = make_order(CONFIG, DAG, EMPTY | {"datasets": ["B1_glaive", "B6_ultrachat"], "tokens_per_dataset": "10M"})
    rows = [
        DatasetSurvey(
            name="B1_glaive", budget_tokens=10_000_000, on_disk_tokens=10_000_120, left_tokens=0, responses=9, prompts=10_000, met=True
        ),
        DatasetSurvey(
            name="B6_ultrachat",
            budget_tokens=10_000_000,
            on_disk_tokens=0,
            left_tokens=10_000_000,
            responses=0,
            met=False,
            tokens_per_s=1000,
        ),
    ]
    text = show(plan_table(order, SurveyResult(campaign="synth_100k", datasets=rows)))
    assert "10,000,120" in text
    assert "done" in text
    assert "not prepared" in text
    assert "2.8 h" in text


@pytest.mark.parametrize(
    ("left", "rate", "text"), [(0, None, "done"), (5, None, "not measured"), (60_000, 1000.0, "1 min"), (10**7, 500.0, "5.6 h")]
)
def test_eta(left: int, rate: float | None, text: str) -> None:
    assert eta(left, rate) == text
