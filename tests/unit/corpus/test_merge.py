"""The step `merge`: what goes in, in which order, and that nothing changes where nothing changed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from draftmill.corpus import merge, tokenize
from draftmill.corpus.checks.read import read_rows
from draftmill.corpus.manifest import read_manifest
from draftmill.corpus.records import ids_path
from draftmill.corpus.verify import verify
from draftmill.errors import PermanentError, StoppedError, TemporaryError
from draftmill.files import FileLock
from draftmill.generation.response import Response
from draftmill.generation.summary import write_summary
from draftmill.prompts.prompt import Prompt, content_id
from draftmill.prompts.split import is_held_out
from tests.unit.corpus.campaign import Campaign, answer, make_campaign, make_prompts, two_datasets, with_ids


def run(campaign: Campaign) -> dict:
    return merge.run(campaign.ctx())


def all_steps(campaign: Campaign) -> dict:
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    return run(campaign)


def rows(campaign: Campaign, split: str = "train") -> list[dict]:
    return [row for _, row in read_rows(campaign.folder.corpus, split)]


def manifest(campaign: Campaign) -> dict:
    found = read_manifest(campaign.folder.corpus)
    assert found is not None
    return found


def test_sums_are_those_of_the_journals(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, "alpha", "beta", corpus={"held_out_fraction": 0.2})
    journals = {"alpha": campaign.fill("alpha", 60, 40), "beta": campaign.fill("beta", 30, 30)}
    result = all_steps(campaign)
    found = rows(campaign) + rows(campaign, "held_out")
    for name, responses in journals.items():
        mine = {row["id"]: row for row in found if row["dataset"] == name}
        assert mine.keys() == {response.id for response in responses}
        assert sum(sum(row["loss_mask"]) for row in mine.values()) == sum(response.completion_tokens for response in responses)
        assert sum(len(row["input_ids"]) for row in mine.values()) == sum(
            response.prompt_tokens + response.completion_tokens for response in responses
        )
        assert all(mine[response.id]["input_ids"][response.prompt_tokens :] == response.output_ids for response in responses)
        assert manifest(campaign)["datasets"][name]["loss_tokens"] == sum(response.completion_tokens for response in responses)
    assert result["datasets"] == {"alpha": 40, "beta": 30}
    assert (result["rows"], result["held_out_rows"]) == (len(rows(campaign)), len(rows(campaign, "held_out")))
    assert result["loss_tokens"] == sum(sum(row["loss_mask"]) for row in rows(campaign))
    assert Path(result["train"]) == campaign.folder.corpus / "train.jsonl"
    assert result["manifest_sha256"] == manifest(campaign)["sha256"]


def test_the_order_is_mixed_and_depends_on_ids_and_seed_alone(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    first = [row["id"] for row in rows(campaign)]
    halves = Counter(row["dataset"] for row in rows(campaign)[:35])
    assert min(halves.values()) > 8
    responses = campaign.fill("alpha", 60, 40)
    random.Random(99).shuffle(responses)
    campaign.write_journal("alpha", responses)
    assert all_steps(campaign)["reused"] is False
    assert [row["id"] for row in rows(campaign)] == first
    campaign.write_journal("alpha", [*responses, *(answer(prompt) for prompt in make_prompts("alpha", 60)[40:])])
    all_steps(campaign)
    grown = [row["id"] for row in rows(campaign)]
    assert [identity for identity in grown if identity in first] == first
    campaign.change(seed=8)
    for name, prompts, answered in (("alpha", 60, 60), ("beta", 30, 30)):
        campaign.fill(name, prompts, answered)
    all_steps(campaign)
    seeded = [row["id"] for row in rows(campaign)]
    assert sorted(seeded) == sorted(grown)
    assert seeded != grown


def test_nothing_changed_is_a_no_op_with_the_same_manifest(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    first = all_steps(campaign)
    target = campaign.folder.corpus.readlink()
    again = all_steps(campaign)
    assert again == first | {"reused": True}
    assert campaign.folder.corpus.readlink() == target


def test_settings_that_say_nothing_about_the_rows_change_nothing(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    server = campaign.plan.server.model_dump()
    server["profile"]["idle_stop_s"] = 5.0
    campaign.change(datasets_at_once=1, merge_partial=True, server=server)
    assert all_steps(campaign)["reused"] is True


def test_more_responses_make_a_new_version_that_names_its_parent(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    first = all_steps(campaign)
    old = campaign.folder.corpus.resolve()
    with (campaign.folder.corpus / "train.jsonl").open("rb") as reader:
        campaign.fill("alpha", 60, 50)
        second = all_steps(campaign)
        assert len(reader.read().splitlines()) == first["rows"]
    assert (second["reused"], second["rows"]) == (False, 80)
    assert manifest(campaign)["parent"] == first["manifest_sha256"]
    assert verify(old).manifest_sha256 == first["manifest_sha256"]
    campaign.fill("alpha", 60, 60)
    all_steps(campaign)
    assert not old.exists()
    assert sorted(path.name for path in old.parent.iterdir() if path.is_dir()) == sorted(
        [second["manifest_sha256"][:16], manifest(campaign)["sha256"][:16]]
    )


@pytest.mark.parametrize("name", ["train.jsonl", "manifest.json", "manifest.json.sha256"])
def test_a_damaged_corpus_is_made_again(tmp_path: Path, name: str) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    path = campaign.folder.corpus / name
    path.write_bytes(path.read_bytes()[:-1])
    assert run(campaign)["reused"] is False
    assert verify(campaign.folder.corpus).faults == []


def test_rows_too_long_are_left_out_whole_and_counted(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"max_length": 120})
    all_steps(campaign)
    entry = manifest(campaign)["datasets"]["alpha"]
    lengths = [len(row["input_ids"]) for row in rows(campaign)]
    assert max(lengths) <= 120
    assert entry["too_long"] > 0
    assert entry["too_long"] + entry["train"] == 40 == entry["records"]


def test_held_out_conversations_are_those_of_the_split(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"held_out_fraction": 0.3})
    all_steps(campaign)
    assert 5 < len(rows(campaign, "held_out")) < 40
    assert all(is_held_out(row["conversation"], 7, 0.3) for row in rows(campaign, "held_out"))
    assert not any(is_held_out(row["conversation"], 7, 0.3) for row in rows(campaign))


def test_all_turns_of_a_conversation_are_in_one_split(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, "alpha", corpus={"held_out_fraction": 0.5})
    prompts = make_prompts("alpha", 20)
    made: list[Response] = []
    for prompt in prompts:
        first = answer(prompt)
        later = Prompt(content_id(f"{prompt.id} later".encode()), [1], "alpha", prompt.conversation)
        made += [first, with_ids(answer(later), [*prompt.input_ids, *first.output_ids, 9], 1)]
    campaign.write_prompts("alpha", prompts)
    campaign.write_journal("alpha", made)
    all_steps(campaign)
    sides = [{row["conversation"] for row in rows(campaign, split)} for split in ("train", "held_out")]
    assert sides[0].isdisjoint(sides[1])
    assert [len(side) > 2 for side in sides] == [True, True]
    assert len(rows(campaign)) + len(rows(campaign, "held_out")) == 40


def test_a_weight_takes_a_share_that_grows_with_it(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"weights": {"alpha": 0.4}})
    all_steps(campaign)
    few = {row["id"] for row in rows(campaign) if row["dataset"] == "alpha"}
    assert 6 < len(few) < 28
    assert manifest(campaign)["datasets"]["alpha"]["not_sampled"] == 40 - len(few)
    assert manifest(campaign)["datasets"]["beta"]["not_sampled"] == 0
    campaign.change(corpus={"weights": {"alpha": 0.7}})
    run(campaign)
    assert few < {row["id"] for row in rows(campaign) if row["dataset"] == "alpha"}


def test_one_id_in_two_data_sets_is_taken_once(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, "alpha", "beta")
    prompts = make_prompts("alpha", 20)
    for name, number in (("alpha", 20), ("beta", 5)):
        campaign.write_prompts(name, prompts)
        campaign.write_journal(name, [answer(prompt) for prompt in prompts[:number]])
    all_steps(campaign)
    assert len(rows(campaign)) == 20
    assert {row["dataset"] for row in rows(campaign)} == {"alpha"}
    assert manifest(campaign)["datasets"]["beta"]["doubled_id"] == 5
    assert verify(campaign.folder.corpus).faults == []


@pytest.mark.parametrize("compress", [False, True])
def test_shards_hold_all_rows_in_order(tmp_path: Path, compress: bool) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    order = [row["id"] for row in rows(campaign)]
    campaign.change(corpus={"shard_rows": 35, "compress": compress})
    result = run(campaign)
    folder = campaign.folder.corpus / "train"
    assert sorted(path.name for path in folder.iterdir()) == [f"{n:05d}.jsonl{'.zst' if compress else ''}" for n in range(2)]
    assert Path(result["train"]) == folder
    assert [row["id"] for row in rows(campaign)] == order
    assert verify(campaign.folder.corpus).faults == []


def test_records_that_are_missing_or_old_stop_the_merge(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    tokenize.run(campaign.ctx("alpha"))
    with pytest.raises(PermanentError, match=r"beta: it has no records; tokenize it first \(or allow it with merge_partial\)"):
        run(campaign)
    tokenize.run(campaign.ctx("beta"))
    campaign.fill("alpha", 60, 41)
    with pytest.raises(PermanentError, match="alpha: its prompts, responses or quality policies have changed since"):
        run(campaign)
    assert not campaign.folder.corpus.exists()


def test_a_data_set_below_its_budget_stops_the_merge_unless_its_prompts_are_used_up(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    datasets = [dataset.model_dump() | {"budget_tokens": 2700} for dataset in campaign.plan.datasets]
    campaign.change(datasets=datasets)
    with pytest.raises(PermanentError, match=r"beta: it has 2,489 of its 2,700 tokens; generate the rest first \(or"):
        all_steps(campaign)
    write_summary(campaign.folder, campaign.plan.dataset("beta"), {"outcome": "exhausted", "responses": 30})
    assert run(campaign)["datasets"] == {"alpha": 40, "beta": 30}


def test_a_partial_merge_says_what_it_lacks(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, "alpha", "beta", "gamma", merge_partial=True)
    for name in ("alpha", "beta"):
        campaign.fill(name, 30, 20)
        tokenize.run(campaign.ctx(name))
    campaign.fill("beta", 30, 25)
    assert run(campaign)["datasets"] == {"alpha": 20, "beta": 20}
    assert manifest(campaign)["left_out"].keys() == {"gamma"}
    assert manifest(campaign)["incomplete"].keys() == {"beta"}
    assert "This is a partial corpus" in (campaign.folder.corpus / "README.md").read_text()


def test_none_at_all_is_an_error_even_for_a_partial_merge(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="none of alpha has records"):
        run(make_campaign(tmp_path, "alpha", merge_partial=True))


def test_only_data_sets_of_the_plan_are_merged(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    campaign.plan = campaign.plan.only("beta")
    assert run(campaign)["datasets"] == {"beta": 30}


def test_rows_of_two_models_do_not_mix(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    path = campaign.folder.prompts_meta("beta")
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"template_hash": "another"}))
    with pytest.raises(PermanentError, match=r"beta and alpha differ in template_hash \(another and"):
        all_steps(campaign)


def test_damaged_records_are_not_merged(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    for name in campaign.plan.names:
        tokenize.run(campaign.ctx(name))
    path = ids_path(campaign.folder.records("beta"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(PermanentError, match="are not what was written; tokenize beta again"):
        run(campaign)
    tokenize.run(campaign.ctx("beta"))
    assert run(campaign)["rows"] == 70


def test_no_row_for_training_is_an_error(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"max_length": 5})
    with pytest.raises(PermanentError, match=r"no row is left for training \(too_long 70\)"):
        all_steps(campaign)


def test_two_merges_do_not_meet(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    all_steps(campaign)
    lock = FileLock(tmp_path / "campaigns/test/corpora/.lock")
    assert lock.acquire()
    with pytest.raises(TemporaryError, match="another process is at it"):
        run(campaign)
    lock.release()


def test_a_stop_leaves_the_old_corpus(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path)
    first = all_steps(campaign)
    campaign.fill("alpha", 60, 50)
    tokenize.run(campaign.ctx("alpha"))
    ctx = campaign.ctx()
    ctx.stop.set()
    with pytest.raises(StoppedError):
        merge.run(ctx)
    assert verify(campaign.folder.corpus).manifest_sha256 == first["manifest_sha256"]
    assert [path.name for path in campaign.folder.corpus.resolve().parent.glob(".building*")] == []


def test_the_coverage_of_the_draft_vocabulary_is_said(tmp_path: Path) -> None:
    campaign = two_datasets(tmp_path, corpus={"draft_vocab_size": 100})
    all_steps(campaign)
    coverage = manifest(campaign)["exports"]["vocabulary"]["coverage"]
    assert 0.2 < coverage < 0.9
    assert f"a draft vocabulary of 100 covers {coverage:.2%} of the generated tokens" in campaign.said


def test_the_manifest_tells_where_everything_came_from(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, "alpha", description="For the test.")
    responses = campaign.fill("alpha", 30, 20)
    campaign.write_journal("alpha", [replace(response, server="s1" if number < 5 else "s2") for number, response in enumerate(responses)])
    all_steps(campaign)
    told = manifest(campaign)
    assert told["schema"] == 1
    assert told["description"] == "For the test."
    assert {name: entry["rows"] for name, entry in told["server"]["answered_by"].items()} == {"s1": 5, "s2": 15}
    assert told["model"]["tokenizer_hash"] == orjson.loads(campaign.folder.prompts_meta("alpha").read_bytes())["tokenizer_hash"]
    assert len(told["draftmill"]["code_hash"]) == 64
    entry = told["datasets"]["alpha"]
    assert entry["samplings"] == [{"sampling": {"temperature": 1.0, "top_p": 0.95}, "rows": 20}]
    assert entry["sources"][0]["path"] == "samples/alpha.jsonl"
    assert entry["responses"] == 20 == entry["train"] + sum(entry["dropped"].values())
    assert set(told["files"]) >= {"train.jsonl", "README.md", "vocabulary/token_counts.npy", "charts/lengths.png"}
