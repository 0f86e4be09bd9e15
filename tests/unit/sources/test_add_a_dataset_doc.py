"""docs/add-a-dataset.md: its examples load and work as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill.sources.adapters import ADAPTERS, make_adapter
from draftmill.sources.chat import SkipRow
from draftmill.spec.dataset import DatasetSpec

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "add-a-dataset.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_entries_load() -> None:
    entries: dict[str, Any] = {}
    for block in blocks("yaml"):
        entries |= yaml.safe_load(block)
    assert len(entries) == 2
    for values in entries.values():
        spec = DatasetSpec.model_validate(values, strict=False)
        adapter = make_adapter(spec.adapter, spec.columns)
        assert adapter.columns
    quiz = make_adapter("generic", entries["C2_quiz"]["columns"])
    assert list(quiz.conversation({"question": "q", "persona": "s"}).messages)[-1] == {"role": "user", "content": "q"}


def test_the_class_works() -> None:
    namespace: dict[str, Any] = {"__name__": "exam"}
    (code,) = blocks("python")
    exec(compile(code, "exam.py", "exec"), namespace)
    exam = namespace["Exam"]()
    assert list(exam.conversation({"stem": "2 + 2?", "choices": [3, 4]}).messages) == [{"role": "user", "content": "2 + 2?\nA) 3\nB) 4"}]
    with pytest.raises(SkipRow, match="no_choices"):
        exam.conversation({"stem": "2 + 2?"})


def test_every_adapter_is_in_the_table() -> None:
    table = TEXT.split("| adapter |")[1].split("## 2.")[0]
    assert set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `")))) == set(
        ADAPTERS
    )
