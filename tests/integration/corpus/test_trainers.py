"""The trainers' own loaders on corpora made here: through the step `accept`, and through the independent checks beside the repository.

Needs an interpreter with specforge and speculators: DRAFTMILL_TRAINERS_PYTHON, or `.venv-trainers/bin/python`.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmill.corpus import accept, merge, tokenize
from draftmill.prompts.prompt import Prompt, content_id
from tests.unit.corpus.campaign import VOCABULARY, Campaign, answer, make_campaign, make_prompts, with_ids

ROOT = Path(__file__).resolve().parents[3]
CHECKS = ROOT.parent / "shared" / "acceptance"
PYTHON = Path(os.environ.get("DRAFTMILL_TRAINERS_PYTHON") or ROOT / ".venv-trainers/bin/python")
DRAFT = 100

needs_trainers = pytest.mark.skipif(not PYTHON.is_file(), reason=f"{PYTHON} is absent; set DRAFTMILL_TRAINERS_PYTHON")


def fill(campaign: Campaign) -> None:
    """Plain rows, cut rows, two turns of a conversation, and control tokens inside an answer."""
    alpha = campaign.fill("alpha", 80, 60)
    campaign.write_journal(
        "alpha", [replace(response, finish_reason="length") if number % 5 == 0 else response for number, response in enumerate(alpha)]
    )
    prompts = make_prompts("beta", 20)
    responses = []
    for prompt in prompts:
        first = answer(prompt)
        later = answer(
            Prompt(content_id(f"{prompt.id} 1".encode()), [1], "beta", prompt.conversation), list(range(VOCABULARY - 15, VOCABULARY))
        )
        responses += [first, with_ids(later, [*prompt.input_ids, *first.output_ids, 9], 1)]
    campaign.write_prompts("beta", prompts)
    campaign.write_journal("beta", responses)


def make(root: Path, **corpus: Any) -> Campaign:
    campaign = make_campaign(root, "alpha", "beta", corpus={"trainers_python": [str(PYTHON)], "acceptance": "required", **corpus})
    fill(campaign)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    return campaign


@needs_trainers
@pytest.mark.parametrize(
    "corpus",
    [
        {},
        {"exports": ["jsonl", "arrow"], "draft_vocab_size": DRAFT, "held_out_fraction": 0.2},
        {"shard_rows": 40},
    ],
    ids=["jsonl", "arrow and mapping", "shards"],
)
def test_both_trainers_accept_what_the_step_accepts(tmp_path: Path, corpus: dict[str, Any]) -> None:
    result = accept.run(make(tmp_path, **corpus).ctx())
    expected = f"accepted: {result['rows']} rows, {result['loss_tokens']} loss tokens"
    assert result["trainers"] == {"specforge": expected, "speculators": expected}


@needs_trainers
def test_a_loader_that_refuses_is_quoted(tmp_path: Path) -> None:
    """The rows are right for the manifest, and the trainer cannot open its form of them."""
    campaign = make(tmp_path, exports=["jsonl", "arrow"], acceptance="installed")
    folder = campaign.folder.corpus
    state = folder / "arrow/train/state.json"
    from draftmill.corpus.checks.trainers import faults, run_loaders
    from draftmill.corpus.manifest import read_manifest

    state.unlink()
    manifest = read_manifest(folder)
    assert manifest is not None
    answers = run_loaders([str(PYTHON)], folder, manifest, tmp_path, campaign.ctx().stop)
    (fault,) = faults(answers, manifest, required=False)
    assert fault.startswith("speculators's loader refuses the corpus: FileNotFoundError")


def check(script: str, *arguments: object) -> dict[str, Any]:
    """Run an independent check; it must exit 0, and its report is returned."""
    command = [str(PYTHON), str(CHECKS / script), *map(str, arguments), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return report


def pytorch_mapping(folder: Path) -> Path:
    """vocab_mapping.pt: made by the merge where it has torch, otherwise from the arrays, by an interpreter that has."""
    path = folder / "vocabulary/vocab_mapping.pt"
    if not path.is_file():
        code = (
            "import sys, numpy, torch; folder, size = sys.argv[1:]; "
            "load = lambda name: torch.from_numpy(numpy.load(f'{folder}/{name}-{size}.npy')); "
            "torch.save({'d2t': load('d2t'), 't2d': load('t2d')}, f'{folder}/vocab_mapping.pt')"
        )
        subprocess.run([str(PYTHON), "-c", code, str(path.parent), str(DRAFT)], check=True)
    return path


@needs_trainers
@pytest.mark.shared
@pytest.mark.skipif(not CHECKS.is_dir(), reason=f"{CHECKS} is absent")
def test_the_independent_checks_accept_every_form_whole(tmp_path: Path) -> None:
    campaign = make(tmp_path, exports=["jsonl", "arrow"], draft_vocab_size=DRAFT)
    folder = campaign.folder.corpus
    totals = json.loads((folder / "manifest.json").read_text())["totals"]
    numbers = {"samples": totals["rows"], "tokens": totals["total_tokens"], "loss_tokens": totals["loss_tokens"]}
    reports = [
        check("check_specforge.py", folder / "train.jsonl", "--vocab-size", VOCABULARY),
        check("check_specforge.py", folder / "train.jsonl", "--vocab-size", VOCABULARY, "--vocab-mapping", pytorch_mapping(folder)),
        check("check_speculators.py", folder / "train.jsonl", "--vocab-size", VOCABULARY),
        check("check_speculators.py", folder / "train.jsonl", "--vocab-size", VOCABULARY, "--draft-vocab-size", DRAFT),
        check("check_speculators.py", folder / "arrow/train", "--vocab-size", VOCABULARY, "--fake-hidden-states"),
    ]
    for report in reports:
        assert report["verdict"] == "accepted"
        assert {name: report[name] for name in numbers} == numbers
    assert reports[1]["vocab_mapping"] == {"draft": DRAFT, "target": VOCABULARY, "coverage": pytest.approx(coverage(folder), abs=1e-5)}


def coverage(folder: Path) -> float:
    told: float = json.loads((folder / "manifest.json").read_text())["exports"]["vocabulary"]["coverage"]
    return told
