"""The Arrow form, as the datasets library and speculators open it."""

from __future__ import annotations

from pathlib import Path

import datasets
import orjson
import pytest

from draftmill.corpus.checks.read import arrow_rows
from draftmill.corpus.exports import arrow
from draftmill.corpus.exports.arrow import ArrowSink
from draftmill.files import sha256_file
from tests.unit.corpus.test_record import make_row

ROWS = [make_row(list(range(n % 7)), list(range(1, 2 + n % 11))) for n in range(60)]


def write(folder: Path) -> ArrowSink:
    with ArrowSink(folder) as sink:
        for row in ROWS:
            sink.add(row)
    return sink


def expected(row) -> tuple[list[int], list[int], int]:
    return row.ids.tolist(), [0] * row.head.prompt_tokens + [1] * row.head.completion_tokens, row.head.tokens


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "arrow")
    assert [(ids.tolist(), mask.tolist(), length) for ids, mask, length in arrow_rows(tmp_path / "arrow")] == list(map(expected, ROWS))


@pytest.mark.parametrize(("batch", "shard"), [(1, 10), (50, 100), (10_000, 10_000)])
def test_batches_and_shards_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, shard: int) -> None:
    monkeypatch.setattr(arrow, "BATCH_TOKENS", batch)
    monkeypatch.setattr(arrow, "SHARD_TOKENS", shard)
    sink = write(tmp_path / "arrow")
    files = sorted((tmp_path / "arrow").glob("*.arrow"))
    assert [path.name for path in files] == [f"data-{number:05d}-of-{len(files):05d}.arrow" for number in range(len(files))]
    assert (len(files) > 3) == (shard < 10_000)
    assert sink.hashes == {path: sha256_file(path) for path in files}
    assert [(ids.tolist(), mask.tolist(), length) for ids, mask, length in arrow_rows(tmp_path / "arrow")] == list(map(expected, ROWS))


def test_the_datasets_library_opens_it(tmp_path: Path) -> None:
    """All but the last line of it: the stored format is torch's, which is not installed here."""
    write(tmp_path / "arrow")
    state = tmp_path / "arrow/state.json"
    told = orjson.loads(state.read_bytes())
    assert told["_format_type"] == "torch"
    state.write_bytes(orjson.dumps(told | {"_format_type": None}))
    loaded = datasets.load_from_disk(tmp_path / "arrow")
    assert [(row["input_ids"], row["loss_mask"], row["seq_len"]) for row in loaded] == list(map(expected, ROWS))
    integers = datasets.Value("int64")
    assert loaded.features == {"input_ids": datasets.List(integers), "loss_mask": datasets.List(integers), "seq_len": integers}


def test_the_layout_is_the_librarys_own(tmp_path: Path) -> None:
    write(tmp_path / "ours")
    integers = datasets.Value("int64")
    features = datasets.Features({"input_ids": datasets.List(integers), "loss_mask": datasets.List(integers), "seq_len": integers})
    theirs = datasets.Dataset.from_dict({"input_ids": [[1]], "loss_mask": [[1]], "seq_len": [1]}, features=features)
    theirs.save_to_disk(tmp_path / "theirs")
    names = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert {path.name for path in (tmp_path / "ours").iterdir()} == names
    for name in ("state.json", "dataset_info.json"):
        ours, library = (orjson.loads((tmp_path / side / name).read_bytes()) for side in ("ours", "theirs"))
        assert ours.keys() == library.keys()
        assert ours.get("features") == library.get("features")


def test_an_empty_split_is_still_a_data_set(tmp_path: Path) -> None:
    with ArrowSink(tmp_path / "arrow"):
        pass
    assert list(arrow_rows(tmp_path / "arrow")) == []
