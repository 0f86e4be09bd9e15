"""Histograms, with and without matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.corpus import merge, tokenize
from draftmill.corpus.charts import text_charts
from draftmill.corpus.records_meta import read_meta
from draftmill.corpus.selection import Selector, Source
from draftmill.corpus.statistics import by_dataset, histogram, taken, tokens, totals
from tests.unit.corpus.campaign import two_datasets


def test_a_png_where_matplotlib_is(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    png = campaign.folder.corpus / "charts/lengths.png"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_block_characters_where_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    campaign = two_datasets(tmp_path)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    assert not (campaign.folder.corpus / "charts").exists()
    card = (campaign.folder.corpus / "README.md").read_text()
    assert "Answer lengths:" in card
    assert "█" in card


def test_numbers_and_text_charts_are_of_the_rows_taken(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"max_length": 130})
    sources = []
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
        meta = read_meta(campaign.folder, name)
        assert meta is not None
        sources.append(Source(campaign.folder.records(name), meta))
    selector = Selector(campaign.plan.corpus, 7)
    for number, source in enumerate(sources):
        selector.read(number, source)
    table = selector.table()
    rows = taken(table)
    assert tokens(rows).max() <= 130
    assert totals(table)["rows"] == len(rows) < len(table) == 70
    numbers = by_dataset(table, sources)
    assert sum(entry["train"] for entry in numbers.values()) == len(rows)
    assert numbers["alpha"]["answer_length"]["max"] == rows["completion_tokens"][rows["source"] == 0].max()
    assert sum(histogram(tokens(rows), 130)) == len(rows)
    lines = text_charts(rows, sources)
    assert [line.split()[0] for line in lines[:2]] == ["alpha", "beta"]
    assert len({line.rindex("|") for line in lines[:2]}) == 1


DRAWING = """
import sys, types, numpy
from pathlib import Path
from draftmill.corpus.charts import draw
rows = numpy.array([(0, 3, 8), (0, 5, 9)], [("source", "H"), ("prompt_tokens", "I"), ("completion_tokens", "I")])
assert draw(Path(sys.argv[1]), rows, [types.SimpleNamespace(name="alpha")]) == ["lengths.png"]
assert "matplotlib.pyplot" not in sys.modules
"""


def test_drawing_needs_no_display(tmp_path: Path) -> None:
    """pyplot, which looks for one, is not even imported."""
    root = Path(__file__).resolve().parents[3]
    env = {"PYTHONPATH": str(root / "include"), "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", DRAWING, str(tmp_path)], check=True, env=env)
    assert (tmp_path / "lengths.png").is_file()
