"""The step `accept`, and how the trainers' loaders are asked. Their own verdicts are in the integration tests."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from draftmill.corpus import accept, merge, tokenize
from draftmill.corpus.checks.trainers import faults, loader_request
from draftmill.corpus.manifest import read_manifest
from draftmill.errors import PermanentError, StoppedError
from draftmill.jobs.bundle import build
from tests.unit.corpus.campaign import Campaign, two_datasets

ROOT = Path(__file__).resolve().parents[3]


def merged(root: Path, **corpus: object) -> Campaign:
    campaign = two_datasets(root, corpus={"acceptance": "verify", **corpus})
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    return campaign


def test_what_verify_finds_whole_is_accepted(tmp_path: Path) -> None:
    campaign = merged(tmp_path, held_out_fraction=0.2)
    result = accept.run(campaign.ctx())
    manifest = read_manifest(campaign.folder.corpus)
    assert result["manifest_sha256"] == manifest["sha256"]
    assert Path(result["corpus"]) == campaign.folder.corpus.resolve()
    assert (result["rows"], result["held_out_rows"]) == (manifest["totals"]["rows"], manifest["totals"]["held_out_rows"])
    assert result["trainers"] == {}


def test_without_a_corpus_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="there is no corpus; merge first"):
        accept.run(two_datasets(tmp_path).ctx())


def test_a_changed_byte_is_refused(tmp_path: Path) -> None:
    campaign = merged(tmp_path)
    path = campaign.folder.corpus / "train.jsonl"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(PermanentError, match=r"train\.jsonl: its content has changed; merge again"):
        accept.run(campaign.ctx())


def test_trainers_that_the_host_lacks_are_named_and_missed_only_where_required(tmp_path: Path) -> None:
    campaign = merged(tmp_path, acceptance="installed")
    told = accept.run(campaign.ctx())["trainers"]
    assert told == {name: f"{name} is not installed for {sys.executable}" for name in ("specforge", "speculators")}
    assert list(campaign.folder.root.glob(".accept-*")) == []
    campaign.change(corpus={"acceptance": "required"})
    merge.run(campaign.ctx())
    with pytest.raises(PermanentError, match=r"specforge is not installed .* and corpus.acceptance is `required`"):
        accept.run(campaign.ctx())


def test_an_interpreter_that_is_none_is_named(tmp_path: Path) -> None:
    campaign = merged(tmp_path, acceptance="installed", trainers_python=["venvs/none/bin/python"])
    with pytest.raises(PermanentError, match=r"corpus.trainers_python: .*/venvs/none/bin/python cannot be run: No such file"):
        accept.run(campaign.ctx())


def test_an_interpreter_that_dies_is_quoted(tmp_path: Path) -> None:
    campaign = merged(tmp_path, acceptance="installed", trainers_python=[executable(tmp_path, "echo 'out of luck' >&2; exit 3")])
    with pytest.raises(PermanentError, match=r"died in .* \(exit 3\): out of luck"):
        accept.run(campaign.ctx())


def executable(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_stop_ends_the_loaders(tmp_path: Path) -> None:
    campaign = merged(tmp_path, acceptance="installed", trainers_python=[executable(tmp_path, f"touch {tmp_path}/began; exec sleep 600")])
    ctx = campaign.ctx()
    said = ctx.progress

    def stop_when_running(message: str, **numbers: int) -> None:
        said(message, **numbers)
        if "running the trainers' loaders" in message:
            threading.Timer(0.2, ctx.stop.set).start()

    ctx.progress = stop_when_running
    with pytest.raises(StoppedError):
        accept.run(ctx)


@pytest.mark.parametrize(
    ("answer", "required", "expected"),
    [
        ({"samples": 3, "tokens": 30, "loss_tokens": 20}, True, ""),
        ({"samples": 2, "tokens": 30, "loss_tokens": 20}, False, "saw {'samples': 2"),
        ({"error": "ValueError: no"}, False, "specforge's loader refuses the corpus: ValueError: no"),
        ({"absent": "not there"}, False, ""),
        ({"absent": "not there"}, True, "not there, and corpus.acceptance is `required`"),
    ],
)
def test_loaders_must_see_what_the_manifest_says(answer: dict, required: bool, expected: str) -> None:
    manifest = {"totals": {"rows": 3, "total_tokens": 30, "loss_tokens": 20}}
    found = "; ".join(faults({"specforge": answer}, manifest, required))
    assert expected in found
    assert bool(expected) == bool(found)


@pytest.mark.parametrize(
    ("corpus", "trainers", "files"),
    [
        ({}, ["specforge", "speculators"], 1),
        ({"shard_rows": 30}, ["specforge", "speculators"], 3),
        ({"compress": True}, [], 0),
        ({"compress": True, "exports": ["jsonl", "arrow"]}, ["speculators"], 0),
    ],
)
def test_loaders_are_asked_for_what_they_can_read(tmp_path: Path, corpus: dict, trainers: list[str], files: int) -> None:
    folder = merged(tmp_path, **corpus).folder.corpus
    request = loader_request(folder, read_manifest(folder), tmp_path, ["specforge", "speculators"])
    assert request["trainers"] == trainers
    assert len(request["jsonl"]) == files


def test_it_works_from_the_zipapp(tmp_path: Path) -> None:
    campaign = merged(tmp_path, acceptance="installed")
    plan = tmp_path / "plan.json"
    plan.write_text(campaign.plan.model_dump_json())
    code = build(tmp_path, ROOT / "include")
    command = [sys.executable, str(code), "accept", "--plan", str(plan), "--workspace", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert ended.returncode == 0, ended.stderr
    assert "specforge is not installed" in ended.stdout + ended.stderr
    command = [sys.executable, str(code), "corpus", "verify", str(campaign.folder.corpus)]
    assert "whole; 70 rows" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
