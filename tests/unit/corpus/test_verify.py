"""One byte changed anywhere is found, and so is a corpus that was wrong before it was signed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from draftmill.corpus import merge, tokenize
from draftmill.corpus.manifest import manifest_path, read_manifest, write_manifest
from draftmill.corpus.verify import main, verify
from tests.unit.corpus.campaign import two_datasets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with every export."""
    corpus = {"exports": ["jsonl", "arrow", "conversations"], "held_out_fraction": 0.2, "draft_vocab_size": 100, "max_length": 400}
    campaign = two_datasets(tmp_path_factory.mktemp("made"), corpus=corpus)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    return campaign.folder.corpus.resolve()


@pytest.fixture
def corpus(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "corpus"))


def test_a_good_corpus_has_no_faults(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(made).faults == []
    assert verify(made).notes == []
    assert main([str(made)]) == 0
    assert "whole; " in capsys.readouterr().out


def test_one_byte_changed_anywhere_is_found(corpus: Path) -> None:
    files = sorted(path for path in corpus.rglob("*") if path.is_file())
    assert len(files) > 15
    for path in files:
        content = path.read_bytes()
        for place in {0, len(content) // 3, len(content) // 2, len(content) - 1}:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            assert verify(corpus).faults != [], f"{path.name} at {place}"
        path.write_bytes(content[:-1])
        assert verify(corpus).faults != [], f"{path.name} cut"
        path.unlink()
        assert verify(corpus).faults != [], f"{path.name} removed"
        path.write_bytes(content)
    assert verify(corpus).faults == []


def test_a_file_that_is_no_part_of_it_is_a_note(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "arrow/train/cache-1.arrow").write_bytes(b"a trainer's cache")
    assert main([str(corpus)]) == 0
    assert "note: arrow/train/cache-1.arrow: is not in the manifest" in capsys.readouterr().out


def test_faults_are_lines_and_an_exit_code(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "train.jsonl").unlink()
    assert main([str(corpus)]) == 65
    assert capsys.readouterr().out.splitlines() == ["fault: train.jsonl: missing", f"{corpus}: NOT whole"]
    assert main([str(corpus / "none")]) == 65
    assert "no such folder" in capsys.readouterr().out


def sign(corpus: Path, change: Callable[[dict], None] = lambda _: None) -> None:
    """Write a manifest that fits the files as they are now."""
    manifest = orjson.loads(manifest_path(corpus).read_bytes())
    del manifest["files"]
    change(manifest)
    write_manifest(corpus, manifest, {})
    assert read_manifest(corpus) is not None


def rewrite(corpus: Path, split: str, change: Callable[[list[dict]], Any]) -> None:
    """Change the rows of a split and sign the result."""
    path = corpus / f"{split}.jsonl"
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    change(rows)
    path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    sign(corpus)


def faults(corpus: Path) -> str:
    return "; ".join(verify(corpus).faults)


def shift_mask(rows: list[dict]) -> None:
    rows[3]["loss_mask"] = [*rows[3]["loss_mask"][1:], 1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (shift_mask, "train.jsonl:4: loss_mask is not"),
        (lambda rows: rows[3]["loss_mask"].__setitem__(0, 2), "train.jsonl:4: loss_mask is not"),
        (lambda rows: rows[0]["loss_mask"].pop(), "train.jsonl:1: loss_mask is not"),
        (lambda rows: rows[0]["input_ids"].append(5), "token ids, but"),
        (lambda rows: rows[1]["input_ids"].__setitem__(2, 448), "train.jsonl:2: a token id lies outside the vocabulary of 448"),
        (lambda rows: rows[1]["input_ids"].__setitem__(2, 2**62), "outside the vocabulary"),
        (lambda rows: rows[1]["input_ids"].__setitem__(2, -1), "outside the vocabulary"),
        (lambda rows: rows[1]["input_ids"].__setitem__(2, 1.5), "input_ids is not a list of whole numbers"),
        (lambda rows: rows[1].pop("turn"), "train.jsonl:2: lacks one of"),
        (lambda rows: rows.__setitem__(1, 5), "train.jsonl:2: not a JSON object"),
        (lambda rows: rows[5].__setitem__("id", rows[4]["id"]), "1 rows have an id that another row has"),
        (lambda rows: rows.pop(), "manifest.json: totals.rows is"),
        (lambda rows: rows[2].__setitem__("dataset", "gamma"), "data sets that the manifest does not name: gamma"),
        (lambda rows: rows[0]["input_ids"].__setitem__(-1, 9), "token_counts.npy: is not the count"),
        (lambda rows: rows[0]["input_ids"].__setitem__(0, 9), "arrow/train: row 0 is not the row at train.jsonl:1"),
        (lambda rows: rows[0].__setitem__("finish_reason", "length"), "cut_answers is 0, the rows say 1"),
    ],
)
def test_a_wrong_row_is_found_although_it_was_signed(corpus: Path, change: Callable[[list[dict]], Any], expected: str) -> None:
    rewrite(corpus, "train", change)
    assert expected in faults(corpus)


def test_a_held_out_conversation_in_training_is_found(corpus: Path) -> None:
    held_out = [orjson.loads(line) for line in (corpus / "held_out.jsonl").read_bytes().splitlines()]

    def leak(rows: list[dict]) -> None:
        rows.append(held_out[0] | {"id": "f" * 32})

    rewrite(corpus, "train", leak)
    assert "its conversation does not belong to the train split" in faults(corpus)


def test_conversations_in_both_splits_are_found_without_the_rule(corpus: Path) -> None:
    """Of a corpus whose fraction says nothing: rows moved by hand."""
    held_out = [orjson.loads(line) for line in (corpus / "held_out.jsonl").read_bytes().splitlines()]
    rewrite(corpus, "held_out", lambda rows: rows.__setitem__(slice(None), [held_out[0], held_out[0] | {"id": "f" * 32}]))
    rewrite(corpus, "train", lambda rows: rows.append(held_out[0] | {"id": "e" * 32}))
    sign(corpus, lambda manifest: manifest["corpus"].update(held_out_fraction=0.0))
    assert "does not belong to the held_out split" in faults(corpus)


def test_rows_longer_than_the_policy_are_found(corpus: Path) -> None:
    sign(corpus, lambda manifest: manifest["corpus"].update(max_length=50))
    assert "longer than max_length 50" in faults(corpus)


def test_a_mapping_that_is_none_is_found(corpus: Path) -> None:
    import numpy as np

    path = corpus / "vocabulary/d2t-100.npy"
    d2t = np.load(path)
    np.save(path, d2t + 1)
    sign(corpus)
    assert "d2t and t2d do not describe the same tokens" in faults(corpus)


def test_a_coverage_that_is_not_true_is_found(corpus: Path) -> None:
    sign(corpus, lambda manifest: manifest["exports"]["vocabulary"].update(coverage=0.99))
    assert "coverage is not what the counts give" in faults(corpus)


def test_conversations_of_other_rows_are_found(corpus: Path) -> None:
    path = corpus / "conversations/train.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    sign(corpus)
    assert "conversations/train: its rows are not those of train.jsonl" in faults(corpus)


def test_arrow_rows_that_are_missing_are_found(corpus: Path) -> None:
    shutil.copytree(corpus / "arrow/held_out", corpus / "arrow/train", dirs_exist_ok=True)
    sign(corpus)
    assert "arrow/train" in faults(corpus)


def test_many_faults_are_counted_not_listed(corpus: Path) -> None:
    rewrite(corpus, "train", lambda rows: [row["loss_mask"].pop() for row in rows])
    report = verify(corpus)
    assert len(report.faults) == 20
    assert report.left_out > 10
