"""Hub data sets through the real `datasets` and `huggingface_hub`, against a hub on the loopback interface and against local caches."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftmill.files import read_json
from draftmill.prompts.prompt import read_prompts
from tests.integration.prompts.loopback_hub import COMMIT, Hub, serve
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

ROOT = Path(__file__).resolve().parents[3]
CARD = """---
configs:
- config_name: all
  data_files:
  - split: train
    path: all/train-*.parquet
  - split: test
    path: all/test-*.parquet
- config_name: code
  data_files: code/train.parquet
---
A card.
"""


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": f"question {number}"}], "num_tokens": 1} for number in range(first, first + count)]


def parquet(values: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(values), sink, row_group_size=7)
    return sink.getvalue()


DATASETS: dict[str, dict[str, bytes]] = {
    "some/parquet": {
        "README.md": CARD.encode(),
        "all/train-00000-of-00002.parquet": parquet(rows(0, 20)),
        "all/train-00001-of-00002.parquet": parquet(rows(20, 20)),
        "all/test-00000-of-00001.parquet": parquet(rows(100, 3)),
        "code/train.parquet": parquet(rows(200, 5)),
    },
    "some/array": {"README.md": b"", "data.json": json.dumps(rows(0, 30)).encode()},
    "some/lines": {"train.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows(0, 10)) + b"{broken\n"},
    "some/csv": {"train.csv": b"prompt,other\nquestion 1,a\nquestion 2,b\n"},
}


class Host:
    """A workspace whose steps run in processes of their own, with one hub address and one cache."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.root = root
        self.env = {"PATH": os.environ["PATH"], "HOME": str(root), "HF_HOME": str(root / "hf"), "PYTHONPATH": str(ROOT / "include")}
        self.env |= {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
        save_model_folder(root / "models/tiny")

    def prepare(self, offline: bool = False, **source: Any) -> subprocess.CompletedProcess[str]:
        adapter = source.pop("adapter", "messages")
        plan = make_plan(make_dataset(sources=[source], adapter=adapter))
        (self.root / "plan.json").write_text(plan.model_dump_json())
        command = [sys.executable, "-m", "draftmill", "prepare", "--plan", "plan.json", "--workspace", str(self.root), "--dataset", "alpha"]
        env = self.env | ({"HF_HUB_OFFLINE": "1"} if offline else {})
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False)

    @property
    def meta(self) -> Any:
        return read_json(self.root / "campaigns/test/prompts/alpha.meta.json")

    @property
    def prompts(self) -> int:
        return sum(1 for _ in read_prompts(self.root / "campaigns/test/prompts/alpha.jsonl"))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve(Hub(DATASETS)) as hub:
        yield hub


@pytest.fixture
def host(tmp_path: Path, hub: Hub) -> Host:
    return Host(tmp_path, hub.address)


def test_parquet_of_one_subset_and_split_at_a_recorded_commit(host: Host, hub: Hub) -> None:
    done = host.prepare(hub="some/parquet", subset="all", split="train")
    assert done.returncode == 0, done.stderr
    assert host.prompts == 40
    (source,) = host.meta["sources"]
    assert source == {"hub": "some/parquet", "subset": "all", "split": "train", "revision": "main", "commit": COMMIT, "rows_read": 40}
    read = [request for request in hub.requests if "resolve" in request and "train-" in request]
    assert read, "files are read from the hub"
    assert all(f"/resolve/{COMMIT}/" in request for request in read), "at the commit that was recorded"
    again = host.prepare(hub="some/parquet", subset="all", split="train")
    assert "prompts are there" in again.stderr


@pytest.mark.parametrize(("name", "prompts", "skipped"), [("some/array", 30, {}), ("some/lines", 10, {"damaged_line": 1})])
def test_json_of_either_kind(host: Host, name: str, prompts: int, skipped: dict[str, int]) -> None:
    done = host.prepare(hub=name)
    assert done.returncode == 0, done.stderr
    assert host.prompts == prompts
    assert host.meta["skipped"] == skipped


def test_other_formats_are_streamed_by_the_datasets_library(host: Host) -> None:
    done = host.prepare(hub="some/csv")
    assert done.returncode == 0, done.stderr
    assert host.prompts == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"hub": "no/such"}, "does not exist"),
        ({"hub": "some/lines", "revision": "v9"}, "has no revision 'v9'"),
        ({"hub": "some/parquet", "subset": "all", "split": "train_sft"}, "has no split 'train_sft'; it has test, train"),
        ({"hub": "some/parquet", "subset": "chemistry"}, "check 'subset'"),
    ],
)
def test_what_the_hub_does_not_have(host: Host, source: dict[str, Any], words: str) -> None:
    done = host.prepare(**source)
    assert done.returncode == 65
    assert words in done.stderr


def test_out_of_reach_and_not_cached(tmp_path: Path) -> None:
    done = Host(tmp_path, "http://127.0.0.1:9").prepare(offline=True, hub="some/lines")
    assert done.returncode == 75
    assert "cannot be reached and is not in the cache" in done.stderr


def test_a_snapshot_in_the_local_cache_serves_without_the_hub(host: Host, hub: Hub) -> None:
    script = "import sys; from huggingface_hub import snapshot_download; snapshot_download(sys.argv[1], repo_type='dataset')"
    subprocess.run([sys.executable, "-c", script, "some/parquet"], env=host.env, check=True, capture_output=True)
    hub.requests.clear()
    done = host.prepare(offline=True, hub="some/parquet", subset="all")
    assert done.returncode == 0, done.stderr
    assert hub.requests == []
    assert host.prompts == 40
    assert host.meta["sources"][0]["commit"] == COMMIT


def test_prepared_prompts_stay_good_while_the_hub_is_out_of_reach(host: Host) -> None:
    assert host.prepare(hub="some/lines").returncode == 0
    again = host.prepare(offline=True, hub="some/lines")
    assert again.returncode == 0, again.stderr
    assert "prompts are there" in again.stderr


def test_a_folder_where_the_name_leads_to(tmp_path: Path) -> None:
    host = Host(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "local/set").mkdir(parents=True)
    (tmp_path / "local/set/train.jsonl").write_bytes(DATASETS["some/lines"]["train.jsonl"])
    done = host.prepare(offline=True, hub="local/set")
    assert done.returncode == 0, done.stderr
    assert host.prompts == 10
