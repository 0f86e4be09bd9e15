"""The card tells a stranger what is in the corpus."""

from __future__ import annotations

import re

import pytest
import yaml

from draftmill.corpus import join, merge, tokenize
from draftmill.corpus.card import MEANINGS, _samples, table
from draftmill.corpus.charts import sparkline
from draftmill.spec.policy import QualityPolicy
from tests.plans import make_dataset, make_plan
from tests.unit.corpus.campaign import END, TOKENIZER, Campaign, answer, make_prompts, tokenizer_folder


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a corpus with a contested licence, drops, cut answers and a mapping."""
    plan = make_plan(
        make_dataset("alpha", budget_tokens=200),
        make_dataset("beta", budget_tokens=200, licence="contested", licence_contested=True),
        profile={"model_path": str(tokenizer_folder())},
        description="Two data sets for a test.",
        corpus={"draft_vocab_size": 100, "held_out_fraction": 0.1},
    )
    campaign = Campaign(tmp_path_factory.mktemp("card"), plan)
    campaign.fill("alpha", 30, 30)
    prompts = make_prompts("beta", 20)
    odd = "# no heading\n```\x07\x1b[31m| x |"
    outputs = [[END], None, *[[*TOKENIZER.encode(odd, add_special_tokens=False), END]] * 18]
    campaign.write_prompts("beta", prompts)
    reasons = ["stop", "length", *["stop"] * 18]
    made = [answer(prompt, output, finish_reason=reason) for prompt, output, reason in zip(prompts, outputs, reasons, strict=True)]
    campaign.write_journal("beta", made)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    merge.run(campaign.ctx())
    return (campaign.folder.corpus / "README.md").read_text()


@pytest.mark.parametrize(
    "sentence",
    [
        "Two data sets for a test.",
        "**Contested or unclear: beta.** Settle their terms",
        "| beta | 20 | 1 | 0 |",
        "| empty | drop | 0 | 1 |",
        "| truncated | keep | 0 | 1 |",
        "- `truncated`: cut at the limit on new tokens.",
        "The longest row has ",
        "Each histogram is as high as its own tallest column.",
        "temperature 1.0, top_p 0.95: 49 responses.",
        "`samples/alpha.jsonl` at `main`",
        "The draft vocabulary of 100 tokens covers",
        "corpus verify DIR",
        "| alpha | 30 | 0 | 0.0% |",
        "| beta | 18 | 1 | 5.3% |",
        "| `loss_mask` | 0 for each token sent",
        "![lengths](charts/lengths.png)",
    ],
)
def test_it_says(card: str, sentence: str) -> None:
    assert sentence in card


def test_every_reason_to_doubt_or_drop_a_response_is_explained() -> None:
    refusals = {getattr(join, name) for name in dir(join) if name.isupper() and isinstance(getattr(join, name), str)}
    doubts = {name for name in QualityPolicy.model_fields if not name.endswith("_fraction")}
    assert set(MEANINGS) == refusals | doubts


def test_samples_stand_in_the_order_of_the_data_sets(card: str) -> None:
    samples = card[card.index("## Sample rows") :]
    assert re.findall(r"^\*\*(\w+)\*\*, `", samples, re.MULTILINE) == ["alpha", "beta"]


def test_a_sample_without_an_answer_says_so() -> None:
    sample = {"dataset": "alpha", "id": "1", "finish_reason": "length", "prompt": "p", "reasoning": "r", "answer": ""}
    assert "No answer came after the reasoning." in _samples([sample])
    assert "The answer is empty." in _samples([sample | {"reasoning": None}])


def test_samples_cannot_break_out_of_their_block(card: str) -> None:
    samples = card[card.index("## Sample rows") : card.index("## Use")]
    odd = [line for line in samples.splitlines() if "no heading" in line or "| x |" in line]
    assert len(odd) == 2
    assert all(line.startswith("    ") for line in odd)
    assert "\\x07\\x1b[31m" in samples
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", card)


def test_hubs_can_read_its_head(card: str) -> None:
    head = yaml.safe_load(card.split("---\n")[1])
    assert [entry["path"] for entry in head["configs"][0]["data_files"]] == ["train.jsonl", "held_out.jsonl"]


def test_tables_align_text_left_and_numbers_right() -> None:
    assert table(["name", "n", "share", "part"], [["a|b", 12345, 0.5, "7%"]]) == [
        "| name | n | share | part |",
        "| --- | ---: | ---: | ---: |",
        "| a\\|b | 12,345 | 0.5 | 7% |",
        "",
    ]


def test_a_sparkline_shows_every_row() -> None:
    assert sparkline([0, 1, 500, 1000]) == " ▁▄█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([]) == ""
