"""One DAG for each host, and no campaign in the DAG of another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from draftmill.errors import PermanentError
from draftmill.spec.load import Config
from draftmill_airflow.form import form
from draftmill_airflow.hosts import campaigns_on, configuration, host_dags, is_ours
from draftmill_airflow.planning import make_order

CONFIG = Path(__file__).resolve().parents[3] / "include" / "config"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two campaigns on gpu_host, synth_100k and again; two on gpu_b, other and idle."""
    shutil.copytree(CONFIG, tmp_path / "config")
    text = (CONFIG / "campaigns" / "synth_100k.yaml").read_text()
    for name, conn_id in {"again": "gpu_host", "other": "gpu_b", "idle": "gpu_b"}.items():
        changed = text.replace("name: synth_100k", f"name: {name}").replace("ssh_conn_id: gpu_host", f"ssh_conn_id: {conn_id}")
        (tmp_path / "config" / "campaigns" / f"{name}.yaml").write_text(changed)
    monkeypatch.setenv("DRAFTMILL_CONFIG", str(tmp_path / "config"))
    return configuration()


def named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DRAFTMILL_CAMPAIGN", text)


def test_the_environment_names_the_folder(config: Config, tmp_path: Path) -> None:
    assert config.folder == tmp_path / "config"


@pytest.mark.parametrize("text", ["", " ", ","])
def test_without_the_environment_there_is_one_host(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delenv("DRAFTMILL_CONFIG", raising=False)
    named(monkeypatch, text)
    (dag,) = host_dags(configuration())
    assert (dag.dag_id, dag.campaign.name, dag.conn_id) == ("generate_drafter_data", "synth_100k", "gpu_host")


def test_each_campaign_that_is_named_gives_its_host_a_dag(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    named(monkeypatch, "synth_100k, other")
    assert [(dag.dag_id, dag.campaign.name, dag.conn_id) for dag in host_dags(config)] == [
        ("generate_drafter_data", "synth_100k", "gpu_host"),
        ("generate_drafter_data__gpu_b", "other", "gpu_b"),
    ]
    assert all(is_ours(dag.dag_id) for dag in host_dags(config))
    assert not is_ours("generate_drafter_database")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("synth_100k,again", "DRAFTMILL_CAMPAIGN: synth_100k and again are both on host gpu_host; name one campaign for each host"),
        ("other,other", "DRAFTMILL_CAMPAIGN: other and other are both on host gpu_b; name one campaign for each host"),
        ("mine", "campaign: 'mine' is not a campaign file"),
        ("../up", "campaign: '../up' is not a campaign file"),
    ],
)
def test_what_makes_no_dag_for_each_host_is_refused(monkeypatch: pytest.MonkeyPatch, config: Config, text: str, sentence: str) -> None:
    named(monkeypatch, text)
    with pytest.raises(PermanentError) as caught:
        host_dags(config)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("schedule", ["every day", "", "@dayly", "61 * * * *"])
def test_a_schedule_that_is_none_is_refused_with_its_file(monkeypatch: pytest.MonkeyPatch, config: Config, schedule: str) -> None:
    path = config.folder / "campaigns" / "other.yaml"
    path.write_text(path.read_text().replace("schedule: null", f'schedule: "{schedule}"'))
    named(monkeypatch, "other")
    with pytest.raises(PermanentError) as caught:
        host_dags(config)
    assert str(caught.value).startswith(f"{path}: schedule: {schedule!r} is neither a cron expression nor a preset such as @daily (")


@pytest.mark.parametrize("schedule", ["@daily", "0 3 * * 6", "@once"])
def test_schedules_are_those_of_airflow(monkeypatch: pytest.MonkeyPatch, config: Config, schedule: str) -> None:
    path = config.folder / "campaigns" / "other.yaml"
    path.write_text(path.read_text().replace("schedule: null", f'schedule: "{schedule}"'))
    named(monkeypatch, "other")
    assert host_dags(config)[0].campaign.schedule == schedule


def test_a_dag_takes_the_campaigns_of_its_host(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    named(monkeypatch, "synth_100k,other")
    first, second = host_dags(config)
    assert make_order(config, first, {"campaign": "again"}).conn_id == "gpu_host"
    assert make_order(config, second, {"campaign": ""}).plan.campaign == "other"
    assert make_order(config, second, {"campaign": "idle"}).conn_id == "gpu_b"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("synth_100k,other", "trigger generate_drafter_data__gpu_b"),
        ("synth_100k", "add a campaign of that host to DRAFTMILL_CAMPAIGN, which makes a DAG for it"),
    ],
)
def test_a_campaign_of_another_host_is_refused_with_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, config: Config, text: str, remedy: str
) -> None:
    named(monkeypatch, text)
    with pytest.raises(AirflowFailException) as caught:
        make_order(config, host_dags(config)[0], {"campaign": "idle"})
    assert str(caught.value) == f"parameter campaign: idle is on host gpu_b, but this DAG works on gpu_host alone; {remedy}"


def test_the_form_offers_the_campaigns_of_the_host_and_those_that_cannot_be_read(config: Config) -> None:
    (config.folder / "campaigns" / "broken.yaml").write_text("name: [")
    assert campaigns_on(config, "gpu_host") == ["again", "broken", "synth_100k"]
    assert form(config, config.campaign("other"))["campaign"].schema["examples"] == ["broken", "idle", "other"]
