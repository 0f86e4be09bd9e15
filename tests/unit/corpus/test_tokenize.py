"""The step `tokenize`, on prompts and journals as the other steps write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from draftmill.corpus import tokenize
from draftmill.corpus.records import RecordsReader, ids_path
from draftmill.corpus.records_meta import RecordsMeta, read_meta
from draftmill.errors import PermanentError, StoppedError, TemporaryError
from draftmill.files import FileLock
from draftmill.generation.response import Response
from draftmill.prompts.prompt import Prompt, content_id
from draftmill.serving.folder import ServerFolder, ServerState, write_state
from tests.unit.corpus.campaign import CLOSE, END, TOKENIZER, Campaign, answer, make_campaign, make_prompts, with_ids


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_campaign(tmp_path, "alpha")


def run(campaign: Campaign) -> dict:
    return tokenize.run(campaign.ctx("alpha"))


def rows(campaign: Campaign) -> dict[str, list[int]]:
    """Ids of all records by id, in file order."""
    with RecordsReader(campaign.folder.records("alpha")) as reader:
        found, first = {}, 0
        for offset, size, head in list(reader.heads()):
            found[head.id] = reader.row(offset, size, first).ids.tolist()
            first += head.tokens
    return found


def meta(campaign: Campaign) -> RecordsMeta:
    found = read_meta(campaign.folder, "alpha")
    assert found is not None
    return found


def test_every_response_becomes_a_record_in_journal_order(campaign: Campaign) -> None:
    responses = campaign.fill("alpha", 60, 40)
    prompts = {prompt.id: prompt for prompt in make_prompts("alpha", 60)}
    result = run(campaign)
    assert rows(campaign) == {response.id: prompts[response.id].input_ids + response.output_ids for response in responses}
    assert list(rows(campaign)) == [response.id for response in responses]
    assert (result["rows_in"], result["rows_kept"], result["dropped"]) == (40, 40, {})
    assert result["loss_tokens"] == sum(response.completion_tokens for response in responses)
    assert result["total_tokens"] == sum(map(len, rows(campaign).values()))
    assert result["path"] == str(campaign.folder.records("alpha"))


def test_ids_survive_whatever_text_they_make(campaign: Campaign) -> None:
    """Two splits of one text, half a character at a cut, and control tokens inside: bytes as sent and received."""
    prompts = make_prompts("alpha", 3)
    whole = TOKENIZER.encode("recipe 🙂", add_special_tokens=False)
    letters = [TOKENIZER.encode(letter, add_special_tokens=False)[0] for letter in "recipe "] + whole[-4:]
    assert letters != whole
    assert TOKENIZER.decode(letters) == TOKENIZER.decode(whole)
    outputs = [letters, whole[:-2], [CLOSE, 0, CLOSE, END, 9, END]]
    reasons = ["stop", "length", "stop"]
    campaign.write_prompts("alpha", prompts)
    made = zip(prompts, outputs, reasons, strict=True)
    campaign.write_journal("alpha", [answer(prompt, output, finish_reason=reason) for prompt, output, reason in made])
    run(campaign)
    assert list(rows(campaign).values()) == [prompt.input_ids + output for prompt, output in zip(prompts, outputs, strict=True)]


def test_rows_in_is_kept_plus_dropped_and_the_refused_are_named(campaign: Campaign) -> None:
    prompts = make_prompts("alpha", 30)
    good = [answer(prompt) for prompt in prompts[:20]]
    bad = [
        replace(answer(prompts[20]), id=content_id(b"gone")),
        answer(prompts[21], input_hash="0" * 32),
        answer(prompts[22], [END]),
        answer(prompts[23], [7, 8, 9] * 400),
    ]
    campaign.write_prompts("alpha", prompts)
    campaign.write_journal("alpha", [*bad, *good])
    result = run(campaign)
    assert result["dropped"] == {"prompt_missing": 1, "other_prompt": 1, "empty": 1, "repetition": 1}
    assert result["rows_in"] == 24 == result["rows_kept"] + sum(result["dropped"].values())
    assert meta(campaign).named["other_prompt"] == [prompts[21].id]
    assert meta(campaign).finish_reasons == {"stop": 20}


def test_unreadable_lines_and_doubled_ids_are_counted(campaign: Campaign) -> None:
    responses = campaign.fill("alpha", 20, 10)
    path = campaign.folder.journal("alpha")
    path.write_bytes(path.read_bytes() + b"{broken\n" + responses[0].to_line() + responses[1].to_line()[:40])
    assert run(campaign)["rows_in"] == 10
    assert {name: meta(campaign).journal.lines[name] for name in ("responses", "unreadable", "doubled")} == {
        "responses": 10,
        "unreadable": 2,
        "doubled": 1,
    }


def test_later_turns_join_with_what_was_sent(campaign: Campaign) -> None:
    prompts = make_prompts("alpha", 4)
    first = answer(prompts[0])
    sent = [*prompts[0].input_ids, *first.output_ids, 33, 34]
    second = with_ids(answer(Prompt(content_id(b"second"), [1], "alpha", prompts[0].conversation), [35, END]), sent, 1)
    campaign.write_prompts("alpha", prompts)
    campaign.write_journal("alpha", [second, first])
    run(campaign)
    assert rows(campaign)[second.id] == [*sent, 35, END]
    assert orjson.loads(campaign.folder.records("alpha").read_bytes().splitlines()[0])["turn"] == 1


def test_nothing_is_built_twice(campaign: Campaign) -> None:
    campaign.fill("alpha", 30, 20)
    first = run(campaign)
    before = campaign.folder.records("alpha").stat().st_ino
    assert run(campaign) == first
    assert campaign.folder.records("alpha").stat().st_ino == before
    assert "nothing changed" in campaign.said[-1]


@pytest.mark.parametrize("change", ["response", "policy", "damage to the ids", "damage to the heads", "loss of the ids"])
def test_what_changed_is_built_again(campaign: Campaign, change: str) -> None:
    responses = campaign.fill("alpha", 30, 20)
    run(campaign)
    heads = campaign.folder.records("alpha")
    if change == "response":
        campaign.write_journal("alpha", [*responses, answer(make_prompts("alpha", 30)[25])])
    elif change == "policy":
        campaign.change(quality={"truncated": "drop"})
    elif change == "loss of the ids":
        ids_path(heads).unlink()
    else:
        path = heads if change.endswith("heads") else ids_path(heads)
        path.write_bytes(path.read_bytes().replace(path.read_bytes()[40:44], b"    "))
    assert run(campaign)["rows_kept"] == 20 + (change == "response")
    assert "nothing changed" not in "".join(campaign.said)
    assert len(rows(campaign)) == 20 + (change == "response")


@pytest.mark.parametrize(
    ("responses", "sentence"),
    [
        ([], "has no response"),
        ([END], "all 20 responses were dropped: empty 20"),
        (None, "12 of 20 responses were dropped, more than the 50%"),
    ],
)
def test_too_many_losses_fail_and_leave_the_old_records(campaign: Campaign, responses: list[int] | None, sentence: str) -> None:
    prompts = make_prompts("alpha", 30)
    campaign.fill("alpha", 30, 10)
    run(campaign)
    before = campaign.folder.records("alpha").read_bytes()
    outputs = [responses or [END] if responses is not None or number < 12 else None for number in range(20)]
    made = [answer(prompt, output) for prompt, output in zip(prompts, outputs, strict=False)]
    campaign.write_journal("alpha", made if responses != [] else [])
    with pytest.raises(PermanentError, match=sentence):
        run(campaign)
    assert campaign.folder.records("alpha").read_bytes() == before
    assert [path.name for path in campaign.folder.records("alpha").parent.iterdir() if path.name.endswith(".tmp")] == []


def test_frequent_doubts_are_said_although_nothing_is_dropped(campaign: Campaign) -> None:
    prompts = make_prompts("alpha", 20)
    campaign.write_prompts("alpha", prompts)
    made = [answer(prompt, finish_reason="length" if number < 7 else "stop") for number, prompt in enumerate(prompts)]
    campaign.write_journal("alpha", made)
    assert run(campaign)["dropped"] == {}
    assert "doubtful ones are frequent: truncated 7 (35.0%)" in "".join(campaign.said)


def test_without_prompts_or_journal_it_says_what_to_do(campaign: Campaign) -> None:
    with pytest.raises(PermanentError, match="prepare alpha first"):
        run(campaign)
    campaign.write_prompts("alpha", make_prompts("alpha", 3))
    with pytest.raises(PermanentError, match="generate alpha first"):
        run(campaign)


def test_two_at_once_do_not_mix(campaign: Campaign) -> None:
    campaign.fill("alpha", 5, 5)
    lock = FileLock(campaign.folder.records("alpha").with_suffix(".lock"))
    assert lock.acquire()
    with pytest.raises(TemporaryError, match="another process is at it"):
        run(campaign)
    lock.release()
    assert run(campaign)["rows_kept"] == 5


def test_a_stop_leaves_nothing_behind(campaign: Campaign) -> None:
    campaign.fill("alpha", 5, 5)
    ctx = campaign.ctx("alpha")
    ctx.stop.set()
    with pytest.raises(StoppedError):
        tokenize.run(ctx)
    assert [path.name for path in campaign.folder.records("alpha").parent.iterdir()] == ["alpha.lock"]


def test_what_a_kill_left_is_cleared_away(campaign: Campaign) -> None:
    campaign.fill("alpha", 5, 5)
    folder = campaign.folder.records("alpha").parent
    folder.mkdir()
    left, others = folder / ".alpha.ids.x1y2.tmp", folder / ".alphabet.jsonl.x1y2.tmp"
    left.touch()
    others.touch()
    run(campaign)
    assert (left.exists(), others.exists()) == (False, True)


def test_a_host_without_the_tokenizer_says_what_it_could_not_check(campaign: Campaign) -> None:
    campaign.fill("alpha", 5, 5)
    path = campaign.folder.prompts_meta("alpha")
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"tokenizer_hash": "other"}))
    run(campaign)
    assert "has changed since the prompts were rendered" in meta(campaign).not_checked["replacement_characters"]
    campaign.change(quality={"replacement_characters": "drop"})
    with pytest.raises(PermanentError, match="has changed since"):
        run(campaign)


def test_the_server_that_answered_is_described_as_long_as_it_is_known(campaign: Campaign) -> None:
    responses = campaign.fill("alpha", 20, 10)
    arguments = {"tp-size": 8, "api-key": "hidden", "max-total-tokens": 5}
    folder = ServerFolder.of(campaign.ctx().workspace)
    write_state(folder, ServerState(fingerprint="server-1", version="0.5.23", model_path="m", arguments=arguments))
    run(campaign)
    known = {"server-1": {"version": "0.5.23", "model_path": "m", "arguments": {"tp-size": 8, "max-total-tokens": 5}}}
    assert meta(campaign).described_servers == known
    write_state(folder, ServerState(fingerprint="server-2", version="0.6"))
    second = answer(make_prompts("alpha", 20)[15], server="server-2")
    campaign.write_journal("alpha", [*responses, second])
    run(campaign)
    assert meta(campaign).described_servers["server-1"] == known["server-1"]
    assert meta(campaign).described_servers["server-2"]["version"] == "0.6"
    assert meta(campaign).servers == {"server-1": 10, "server-2": 1}


def test_rows_of_the_oldest_layouts_are_counted_not_guessed(campaign: Campaign) -> None:
    prompts = make_prompts("alpha", 10)
    campaign.write_prompts("alpha", prompts)
    campaign.write_journal("alpha", [answer(prompt) for prompt in prompts[:6]])
    path = campaign.folder.journal("alpha")
    old = {"id": prompts[7].id, "response": "text", "usage": {"prompt_tokens": 5, "completion_tokens": 4}}
    unhashed = {"id": prompts[8].id, "output_ids": [5, 6], "completion_tokens": 2, "finish_reason": "stop"}
    path.write_bytes(path.read_bytes() + orjson.dumps(old) + b"\n" + orjson.dumps(unhashed) + b"\n")
    assert run(campaign)["dropped"] == {"no_output_ids": 1, "no_input_hash": 1}


def test_samplings_are_told_apart_but_not_by_their_room(campaign: Campaign) -> None:
    prompts = make_prompts("alpha", 6)
    campaign.write_prompts("alpha", prompts)
    samplings = [{"temperature": 1.0, "max_new_tokens": 10 + number} for number in range(4)] + [{"temperature": 0.5}] * 2
    made: list[Response] = [answer(prompt, sampling=sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
    campaign.write_journal("alpha", made)
    run(campaign)
    assert meta(campaign).samplings == [
        {"sampling": {"temperature": 1.0}, "rows": 4},
        {"sampling": {"temperature": 0.5}, "rows": 2},
    ]
