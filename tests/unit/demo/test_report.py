"""The report: numbers from the journals, not from what somebody said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from demo import report
from demo.state import ROOT, Demo

from draftmill.files import write_json
from draftmill.generation.response import Response


def response(number: int, tokens: int) -> Response:
    return Response(
        id=f"{number:032x}",
        input_hash="0" * 32,
        output_ids=list(range(tokens)),
        prompt_tokens=3,
        completion_tokens=tokens,
        finish_reason="stop",
        rid=f"r{number}",
        server="s",
        sampling={"max_new_tokens": 96},
        started_at=1.0,
        finished_at=2.0,
    )


def journal(demo: Demo, name: str, *lengths: int) -> None:
    path = demo.campaign.journal(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(response(number, tokens).to_line() for number, tokens in enumerate(lengths)))


def result(name: str) -> dict[str, Any]:
    return {"dataset": name, "budget_tokens": 100, "outcome": "budget_reached", "completion_tokens": -1, "responses": -1}


def test_tokens_on_disk_are_counted_from_the_journals(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    assert report.tokens_on_disk(demo) == {}
    journal(demo, "alpha", 5, 7)
    journal(demo, "beta", 9)
    assert report.tokens_on_disk(demo) == {"alpha": 12, "beta": 9}


def test_rows_tell_what_is_on_disk_and_what_is_new(tmp_path: Path) -> None:
    demo = Demo(ROOT / ".demo-of-a-test")
    table = report.rows(Demo(tmp_path), {}, {})
    assert table == []
    journal(Demo(tmp_path), "alpha", 60, 41)
    (row,) = report.rows(Demo(tmp_path), {"alpha": result("alpha")}, {"alpha": 60})
    assert (row.completion_tokens, row.new_tokens, row.responses, row.outcome) == (101, 41, 2, "budget_reached")
    assert (ROOT / row.journal).resolve() == Demo(tmp_path).campaign.journal("alpha").resolve()
    assert demo.relative(demo.report) == ".demo-of-a-test/report.json"


def test_the_written_report_has_the_agreed_keys(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    journal(demo, "alpha", 99)
    report.write(demo, report.rows(demo, {"alpha": result("alpha")}, {}), "0.5.23", demo.campaign.corpus / "train.jsonl")
    value = json.loads(demo.report.read_text())
    assert set(value) == {"campaign", "server_version", "corpus", "datasets"}
    keys = {"name", "budget_tokens", "completion_tokens", "new_tokens", "responses", "outcome", "journal"}
    assert [set(entry) for entry in value["datasets"]] == [keys]


def test_the_table_adds_up(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    journal(demo, "alpha", 1000, 234)
    journal(demo, "beta", 66)
    text = report.show(report.rows(demo, {"alpha": result("alpha"), "beta": result("beta")}, {"alpha": 1234}))
    assert text.splitlines()[-1].split() == ["total", "200", "1,300", "66", "3"]


def test_the_servers_version_comes_from_those_who_answered(tmp_path: Path) -> None:
    servers = {"a": {"version": "0.5.23"}, "b": {"version": "0.5.23"}, "c": {"version": "0.5.9"}}
    write_json(tmp_path / "manifest.json", {"server": {"answered_by": servers}})
    assert report.server_version(tmp_path / "manifest.json") == "0.5.23, 0.5.9"
