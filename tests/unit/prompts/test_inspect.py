"""The report: numbers that agree with the files, in text, HTML and PNG."""

from __future__ import annotations

import json
from array import array
from html.parser import HTMLParser
from pathlib import Path

import pytest

from draftmill.errors import PermanentError
from draftmill.prompts.inspect import main
from draftmill.prompts.prepare import run
from draftmill.prompts.prompt import read_prompts
from draftmill.prompts.report import as_text, make_report
from tests.unit.prompts.conftest import MakeContext


def prepare(tmp_path: Path, make_context: MakeContext) -> list[int]:
    rows = [{"messages": [{"role": "user", "content": f"<script>{'word ' * number}"}]} for number in (1, 1, 2, 30, 60, 200)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"messages": []}])))
    ctx = make_context("a.jsonl")
    run(ctx)
    return [len(prompt.input_ids) for prompt in read_prompts(ctx.folder.prompts("alpha"))]


def test_a_report_in_three_forms(tmp_path: Path, make_context: MakeContext, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = prepare(tmp_path, make_context)
    out = tmp_path / "out"
    out.mkdir()
    assert main(["test", "--workspace", str(tmp_path), "--samples", "2", "--output", str(out)]) == 0
    text = capsys.readouterr().out
    for words in ("rows read", "a.jsonl: 7", "skipped: duplicate", "skipped: empty_conversation", f"{sum(lengths):,} tokens"):
        assert words in text
    assert text.count("-- sample") == 2
    assert "<|im_user|>user<|im_middle|><script>" in text
    page = (out / "alpha.report.html").read_text()
    HTMLParser().feed(page)
    assert "<script>" not in page, "text of a data set never becomes markup"
    assert (out / "alpha.lengths.png").read_bytes().startswith(b"\x89PNG")


def test_every_prompt_is_in_one_bin() -> None:
    lengths = array("I", [1, 2, 3, 4, 31, 32, 33, 1000])
    report = make_report({"dataset": "x", "prompts": 8, "rows_read": 8, "rows_used": 8, "sources": [], "skipped": {}}, lengths, [])
    assert sum(count for _, _, count in report.bins) == len(lengths)
    for start, end, count in report.bins:
        assert count == sum(start <= length < end for length in lengths)
    assert (report.longest, report.total_tokens) == (1000, sum(lengths))
    assert "512 to   1,023 tokens         1" in as_text(report)


def test_nothing_prepared(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="no data set is prepared"):
        main(["test", "--workspace", str(tmp_path)])
    with pytest.raises(PermanentError, match="run `draftmill prepare --dataset alpha`"):
        main(["test", "alpha", "--workspace", str(tmp_path)])
