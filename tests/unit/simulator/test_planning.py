"""A small campaign in virtual time, by the product's own generation code, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill.prompts.prompt import order_key
from draftmill.simulator import compare, report
from draftmill.simulator.campaign import Simulated, simulate
from draftmill.simulator.cli import main
from draftmill.simulator.material import Material
from draftmill.simulator.profile import HostProfile
from draftmill.spec.plan import Plan
from tests.plans import make_dataset, make_plan

HOST = HostProfile("small", base_s=0.02, per_request_s=0.0005, kv_tokens=30_000, vocab_size=2_000, context_length=8_000)


def plan() -> Plan:
    return make_plan(
        make_dataset("long", length_class="long", expected_tokens=400, budget_tokens=120_000, max_new_tokens=1_600, in_flight="auto"),
        make_dataset("short", expected_tokens=100, budget_tokens=60_000, max_new_tokens=500, in_flight="auto"),
        make_dataset("few", expected_tokens=50, budget_tokens=10_000, max_new_tokens=400, in_flight="auto", max_prompts=30),
    )


@pytest.fixture(scope="module")
def material() -> Material:
    return Material.of(plan(), prompt_tokens=60)


@pytest.fixture(scope="module")
def run(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(material, HOST, scratch=tmp_path_factory.mktemp("scratch"))


def test_prompts_are_marked_ordered_and_enough(material: Material) -> None:
    for place, dataset in enumerate(material.plan.datasets):
        prompts = material.prompts(dataset)
        keys = [order_key(material.plan.seed, prompt.id) for prompt in prompts]
        assert keys == sorted(keys)
        assert {prompt.input_ids[0] for prompt in prompts} == {10 + place}
        assert len({tuple(prompt.input_ids) for prompt in prompts}) == len(prompts)
        tokens = sum(answer for _, answer in material.lengths(dataset))
        assert len(prompts) == 30 if dataset.max_prompts else tokens > dataset.budget_tokens


def test_the_campaign_ends_as_a_real_one_does(run: Simulated) -> None:
    assert [result.dataset for result in run.results] == ["long", "short", "few"]
    assert [result.outcome for result in run.results] == ["budget_reached", "budget_reached", "exhausted"]
    assert abs(run.budget_error(plan().dataset("short"))) <= 0.01
    assert abs(run.budget_error(plan().dataset("long"))) <= 0.01
    assert run.results[2].responses == 30
    assert run.counters.answered_tokens == run.completion_tokens
    began = {name: span[0] for name, span in run.spans.items()}
    assert began["long"] == began["short"] == 0.0
    # Its slot comes free when the budget of one of the others begins to hold sending back, before the last answer of that one.
    assert 0.0 < began["few"] < min(run.spans["long"][1], run.spans["short"][1])


def test_it_is_repeatable(run: Simulated, material: Material, tmp_path: Path) -> None:
    again = simulate(material, HOST, scratch=tmp_path)
    assert again.seconds == run.seconds
    assert [result.completion_tokens for result in again.results] == [result.completion_tokens for result in run.results]
    assert list(tmp_path.iterdir()) == []


def test_the_answers_are_those_the_policies_get(run: Simulated, material: Material) -> None:
    few = next(entry for entry in compare.work_of(material) if entry.name == "few")
    assert sum(answer for _, answer in few.requests) == run.results[2].completion_tokens


def test_text_and_numbers(run: Simulated) -> None:
    text = report.text(plan(), run)
    assert text.startswith(f"test on small: {round(run.seconds / 3600, 3):.2f} hours, {run.completion_tokens:,} tokens")
    assert all(name in text for name in ("long", "short", "few", "exhausted", "tokens/s", "KV use"))
    numbers = report.numbers(plan(), run)
    assert numbers["completion_tokens"] == sum(entry["completion_tokens"] for entry in numbers["datasets"].values())
    assert 0 < numbers["mean_kv_use"] <= numbers["peak_kv_use"] <= 1


def test_sparkline() -> None:
    assert report.sparkline([]) == ""
    assert report.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert report.sparkline([0, 0, 8, 8], width=2) == "▁█"
    assert report.sparkline([0.0, 0.0]) == "▁▁"


@pytest.mark.parametrize(("name", "begins"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")])
def test_plots(run: Simulated, tmp_path: Path, name: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    report.plot(plan(), run, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    small = make_plan(make_dataset("only", expected_tokens=60, budget_tokens=6_000, max_new_tokens=300, in_flight=4))
    file.write_text(small.model_dump_json())
    numbers = tmp_path / "numbers.json"
    assert main([str(file), "--host", "h200", "--compare", "--json", str(numbers), "--prompt-tokens", "40"]) == 0
    text = capsys.readouterr().out
    assert "test on h200:" in text
    assert "oracle: knows every length" in text
    free = json.loads(numbers.read_text())
    assert main([str(file), "--host", "h200", "--ceilings", "--json", str(numbers), "--prompt-tokens", "40"]) == 0
    held = json.loads(numbers.read_text())
    assert held["mean_running"] < 4 < free["mean_running"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["synth_100k", "--host", "b200"], "'b200' is not a simulated host"),
        (["nothing"], "'nothing' is not a campaign file"),
        (["plan.json", "--datasets", "a"], "resolved already"),
        (["synth_100k", "--tokens-per-dataset", "many"], "tokens_per_dataset"),
    ],
)
def test_mistakes_are_sentences(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 65
    assert says in capsys.readouterr().err
