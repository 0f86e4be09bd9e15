"""Entries of datasets.yaml: what is refused before a host is asked, and that all shipped entries can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from draftmill.sources.adapters import ADAPTERS
from draftmill.spec.dataset import DatasetSpec
from draftmill.spec.load import Config

ROOT = Path(__file__).resolve().parents[3]


def entry(**changes: Any) -> DatasetSpec:
    values = {"sources": [{"path": "a.jsonl"}], "adapter": "messages", "length_class": "short", "licence": "MIT", "expected_tokens": 1}
    return DatasetSpec.model_validate(values | changes, strict=False)


@pytest.mark.parametrize("folder", ["include/config", "demo/config"])
def test_every_shipped_entry_names_an_adapter_that_exists(folder: str) -> None:
    for name, spec in Config(ROOT / folder).datasets().items():
        for adapter in (spec.adapter, *(source.adapter for source in spec.sources if source.adapter)):
            assert adapter in ADAPTERS, name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": {"prompt": "q"}}, "knows its columns"),
        ({"adapter": "generic"}, "needs either"),
        ({"adapter": "generic", "columns": {"prompt": "q", "messages": "m"}}, "needs either"),
        ({"adapter": "generic", "columns": {"question": "q"}}, "question is unknown"),
        ({"sources": [{"path": "a", "adapter": "generic"}]}, "needs either"),
        ({"sources": [{"path": "a", "hub": "b/c"}]}, "not both"),
        ({"sources": [{}]}, "not neither"),
        ({"sources": [{"path": "a/../b"}]}, "must not contain"),
    ],
)
def test_entries_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        entry(**changes)


def test_a_generic_entry_and_one_source_of_another_schema() -> None:
    assert entry(adapter="generic", columns={"prompt": "q"}).columns == {"prompt": "q"}
    sources = [{"path": "a"}, {"path": "b", "adapter": "generic"}]
    assert entry(sources=sources, columns={"messages": "dialogue"}).sources[1].adapter == "generic"
