"""The bundled samples: committed as written by their generator, in the schemas of their sources, enough of them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from demo import host_files
from demo.samples import generate
from demo.state import Demo

FILES = sorted(host_files.SAMPLES.glob("*.jsonl"))
COLUMNS = {
    "B1_glaive": {"system", "chat"},
    "B2_opencodeinstruct": {
        *("id", "input", "output", "domain", "generation_algorithm", "llm_judgement"),
        *("unit_tests", "tests_execution_status", "average_test_score"),
    },
    "B3_magicoder_oss": {"lang", "raw_index", "index", "seed", "openai_fingerprint", "problem", "solution"},
    "B3_magicoder_evol": {"instruction", "response"},
    "B4_mixturethoughts": {"messages", "num_tokens", "source"},
    "B5_openthoughts": {"difficulty", "source", "domain", "conversations"},
    "B6_ultrachat": {"prompt", "prompt_id", "messages"},
    "B7_sharegpt": {"id", "conversations"},
    "B8_sweagent": {"instance_id", "model_name", "target", "trajectory", "exit_status", "generated_patch", "eval_logs"},
}


def test_there_is_a_file_for_each_of_the_eight_sources() -> None:
    assert {path.name[:2] for path in FILES} == {f"B{number}" for number in range(1, 9)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_are_many_and_have_the_published_columns(path: Path) -> None:
    rows = host_files.read_rows(path)
    assert len(rows) >= 24
    assert all(set(row) - {"system"} == COLUMNS[path.stem] - {"system"} for row in rows)


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    generate.main(tmp_path)
    assert {path.name: path.read_bytes() for path in FILES} == {path.name: path.read_bytes() for path in sorted(tmp_path.glob("*.jsonl"))}


@pytest.mark.parametrize("program", generate.texts("programs"), ids=lambda program: program["name"])
def test_each_program_passes_its_check_and_its_spoilt_form_is_another(program: dict[str, Any]) -> None:
    space: dict[str, Any] = {}
    exec(program["code"] + program["test"], space)
    assert program["code"].count(program["wrong"][0]) == 1
    assert program["code"].replace(*program["wrong"]) != program["code"]


def test_the_host_gets_each_file_in_its_own_format(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    host_files.write_samples(demo)
    folder = demo.host / "samples"
    first = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert pq.read_table(folder / "B8_sweagent.parquet").to_pylist() == host_files.read_rows(host_files.SAMPLES / "B8_sweagent.jsonl")
    array = (folder / "B7_sharegpt.json").read_bytes()
    assert array.startswith(b"\xef\xbb\xbf[\r\n")
    assert json.loads(array.decode("utf-8-sig")) == host_files.read_rows(host_files.SAMPLES / "B7_sharegpt.jsonl")
    with gzip.open(folder / "B3_magicoder_evol.jsonl.gz", "rt") as stream:
        assert stream.read() == (host_files.SAMPLES / "B3_magicoder_evol.jsonl").read_text()
    host_files.write_samples(demo)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == first


def test_the_configuration_names_files_that_are_there(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    host_files.write_samples(demo)
    datasets = yaml.safe_load((host_files.CONFIG / "datasets.yaml").read_text())
    for entry in datasets.values():
        assert all((demo.host / source["path"]).is_file() for source in entry["sources"])


def test_the_generator_can_be_called_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        generate.main(tmp_path / "new" / "folder")
    assert said.getvalue() == ""
    assert len(list((tmp_path / "new" / "folder").iterdir())) == len(FILES)
