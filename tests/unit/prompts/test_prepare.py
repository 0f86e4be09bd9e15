"""The step: order, bounds, reuse, what is kept and what is left out, and that processes change nothing."""

from __future__ import annotations

import json
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import ExitCode, PermanentError, StoppedError, TemporaryError
from draftmill.files import FileLock, read_json, sha256_file
from draftmill.generation.response import Response
from draftmill.jobs.outcome import outcome_of
from draftmill.jobs.step import StepContext
from draftmill.prompts.prepare import run
from draftmill.prompts.prompt import Prompt, input_hash, order_key, read_prompts
from tests.unit.prompts.conftest import MakeContext


def write(path: Path, questions: list[str]) -> Path:
    path.write_bytes(b"".join(json.dumps({"messages": [{"role": "user", "content": text}]}).encode() + b"\n" for text in questions))
    return path


def made(ctx: StepContext) -> list[Prompt]:
    run(ctx)
    return list(read_prompts(ctx.folder.prompts(ctx.dataset.name)))


def answer(ctx: StepContext, prompt: Prompt) -> None:
    """Append a response to the journal, as generation does."""
    response = Response(
        id=prompt.id,
        input_hash=input_hash(prompt.input_ids),
        output_ids=[1],
        prompt_tokens=len(prompt.input_ids),
        completion_tokens=1,
        finish_reason="stop",
        rid="r",
        server="s",
        sampling={},
        started_at=0.0,
        finished_at=0.0,
        conversation=prompt.conversation,
    )
    journal = ctx.folder.journal(ctx.dataset.name)
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("ab") as stream:
        stream.write(response.to_line())


def test_a_write_without_room_leaves_what_was_there(tmp_path: Path, make_context: MakeContext) -> None:
    ctx = make_context("a.jsonl")
    write(tmp_path / "a.jsonl", ["the first"])
    before = made(ctx)
    files = {path.name for path in ctx.folder.root.rglob("*")}
    write(tmp_path / "a.jsonl", [f"{number} words " * 20 for number in range(200)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as raised:
            run(ctx)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome_of(raised.value).exit_code is ExitCode.TEMPORARY
    assert outcome_of(raised.value).unexpected is None
    assert list(read_prompts(ctx.folder.prompts("alpha"))) == before
    assert {path.name for path in ctx.folder.root.rglob("*") if not path.name.endswith(".keys")} <= files
    assert len(made(ctx)) == 200


QUESTIONS = [f"question {number}" for number in range(60)]


class TestOrder:
    def test_by_the_seeded_key_of_the_id(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ids = [prompt.id for prompt in made(make_context("a.jsonl"))]
        assert ids == sorted(ids, key=lambda name: order_key(7, name))
        other = [prompt.id for prompt in made(make_context("a.jsonl", plan={"seed": 8}))]
        assert other != ids
        assert set(other) == set(ids)

    def test_more_rows_do_not_reshuffle_the_rest(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        before = [prompt.id for prompt in made(make_context("a.jsonl"))]
        write(tmp_path / "a.jsonl", [f"new {number}" for number in range(40)] + QUESTIONS[::-1])
        after = [prompt.id for prompt in made(make_context("a.jsonl"))]
        assert len(after) == 100
        assert [name for name in after if name in set(before)] == before

    def test_a_bound_takes_the_first_of_the_order(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        whole = made(make_context("a.jsonl"))
        ctx = make_context("a.jsonl", max_prompts=10)
        result = run(ctx)
        assert list(read_prompts(ctx.folder.prompts("alpha"))) == whole[:10]
        assert result["skipped"] == {"over_max_prompts": 50}

    def test_a_bound_counts_prompts_that_can_be_sent(self, tmp_path: Path, make_context: MakeContext, monkeypatch: Any) -> None:
        monkeypatch.setattr("draftmill.prompts.spill._FLUSH_ROWS", 50)
        write(tmp_path / "a.jsonl", [f"q {number}" + " and so on" * (100 if number % 40 else 1) for number in range(4000)])
        ctx = make_context("a.jsonl", max_prompts=60, max_prompt_tokens=100)
        result = run(ctx)
        assert result["prompts"] == 60, "found by scanning again for more candidates"
        assert result["rows_read"] == 4000 == result["rows_used"] + sum(result["skipped"].values())
        assert made(make_context("a.jsonl", max_prompt_tokens=100))[:60] == list(read_prompts(Path(result["path"])))[:60]


class TestLimits:
    def test_prompts_are_never_cut(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", ["short", "x " * 200, "y " * 8000])
        ctx = make_context("a.jsonl", max_prompt_tokens=100)
        assert run(ctx)["skipped"] == {"over_max_prompt_tokens": 2}
        ctx = make_context("a.jsonl")
        assert run(ctx)["skipped"] == {"over_context": 1}

    def test_an_answer_that_fills_the_context_is_a_fault_of_the_campaign(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", ["q"])
        with pytest.raises(PermanentError, match="max_new_tokens 4096 leaves no room"):
            run(make_context("a.jsonl", max_new_tokens=4096))

    def test_no_prompt_at_all_is_an_error_with_the_reasons(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", ["", ""])
        ctx = make_context("a.jsonl")
        with pytest.raises(PermanentError, match=r"none of 2 rows gave a prompt .*empty_prompt 2"):
            run(ctx)
        assert not ctx.folder.prompts("alpha").exists()


class TestProcesses:
    @pytest.mark.parametrize("bound", [None, 700])
    def test_one_and_four_processes_make_the_same_file(
        self, tmp_path: Path, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, bound: int | None
    ) -> None:
        monkeypatch.setattr("draftmill.sources.units.LINES_UNIT_BYTES", 5000)
        monkeypatch.setattr("draftmill.prompts.spill._BUCKET_BYTES", 20_000)
        for shard in range(2):
            write(tmp_path / f"shard-{shard}.jsonl", [f"question {number % 900} <|im_end|>" for number in range(shard * 400, 1000)])
        made_by = {}
        for count in ("0", "1", "4"):
            monkeypatch.setenv("DRAFTMILL_PROCESSES", count)
            ctx = make_context("shard-*.jsonl", max_prompts=bound, plan={"campaign": f"with-{count}"})
            result = run(ctx)
            result.pop("path")
            made_by[count] = (ctx.folder.prompts("alpha").read_bytes(), result)
        assert made_by["0"] == made_by["1"] == made_by["4"]
        assert made_by["0"][1]["prompts"] == (bound or 900)

    def test_a_stop_leaves_what_was_there(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        run(ctx)
        before = {path: path.read_bytes() for path in ctx.folder.prompts("alpha").parent.iterdir() if not path.name.startswith(".")}
        write(tmp_path / "a.jsonl", QUESTIONS * 2 + ["new"])
        ctx.stop = threading.Event()
        ctx.stop.set()
        with pytest.raises(StoppedError):
            run(ctx)
        assert {path: path.read_bytes() for path in before} == before
        assert not list(ctx.folder.prompts("alpha").parent.glob(".alpha.work-*"))

    def test_what_a_killed_run_left_behind_goes(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        folder = ctx.folder.prompts("alpha").parent
        (folder / ".alpha.work-x/deep").mkdir(parents=True)
        (folder / ".alpha.jsonl.x.tmp").write_text("torn")
        (folder / ".alphabet.jsonl.x.tmp").write_text("another data set's")
        run(ctx)
        names = {path.name for path in folder.iterdir() if path.suffix != ".keys"}
        assert names == {"alpha.jsonl", "alpha.meta.json", ".alpha.lock", ".alpha.scan.lock", ".alphabet.jsonl.x.tmp"}

    def test_one_at_a_time(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        lock = FileLock(ctx.folder.prompts("alpha").parent / ".alpha.lock")
        assert lock.acquire("somebody")
        with pytest.raises(TemporaryError, match="being prepared by somebody"):
            run(ctx)
        lock.release()
        assert run(ctx)["prompts"] == 60


class TestReuse:
    def test_the_same_request_is_not_made_again(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        first = run(make_context("a.jsonl"))
        ctx = make_context("a.jsonl")
        stamp = ctx.folder.prompts("alpha").stat().st_mtime_ns
        again = run(ctx)
        assert again == {**first, "reused": True}
        assert ctx.folder.prompts("alpha").stat().st_mtime_ns == stamp
        ctx = make_context("a.jsonl", budget_tokens=99, expected_tokens=5)
        assert run(ctx)["reused"], "a budget changes no prompt"

    @pytest.mark.parametrize(
        ("changes", "plan"),
        [
            ({"max_prompts": 50}, {}),
            ({"max_prompt_tokens": 90}, {}),
            ({"turns": "all"}, {}),
            ({"adapter": "sharegpt"}, {}),
            ({}, {"seed": 8}),
            ({}, {"special_token_text": "skip"}),
        ],
    )
    def test_another_request_is_made(self, tmp_path: Path, make_context: MakeContext, changes: Any, plan: Any) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        run(make_context("a.jsonl"))
        assert not run(make_context("a.jsonl", plan=plan, **changes))["reused"]

    def test_a_changed_source_or_a_damaged_file_is_made_again(self, tmp_path: Path, make_context: MakeContext) -> None:
        source = write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        run(ctx)
        write(source, [*QUESTIONS, "one more"])
        assert run(ctx)["prompts"] == 61
        path = ctx.folder.prompts("alpha")
        path.write_bytes(path.read_bytes()[:-10])
        assert not run(ctx)["reused"]

    def test_the_meta_file_describes_the_prompts(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        run(ctx)
        meta = read_json(ctx.folder.prompts_meta("alpha"))
        assert meta["sha256"] == sha256_file(ctx.folder.prompts("alpha"))
        size = (tmp_path / "a.jsonl").stat().st_size
        assert meta["sources"] == [{"path": "a.jsonl", "files": 1, "bytes": size, "rows_read": 60}]
        assert {"vocab_size", "context_length", "tokenizer_hash", "template_hash", "transformers", "eos_token_ids"} <= set(meta)


class TestAnswered:
    def test_answered_prompts_stay_whatever_changes(self, tmp_path: Path, make_context: MakeContext) -> None:
        source = write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        before = made(ctx)
        for prompt in (before[3], before[40]):
            answer(ctx, prompt)
        write(source, [*QUESTIONS[::-1][:20], "new"])
        ctx = make_context("a.jsonl", plan={"seed": 99}, max_prompts=5)
        result = run(ctx)
        after = list(read_prompts(ctx.folder.prompts("alpha")))
        assert {before[3].id, before[40].id} <= {prompt.id for prompt in after}
        assert len({prompt.id for prompt in after}) == len(after)
        assert [prompt.id for prompt in after] == sorted((prompt.id for prompt in after), key=lambda name: order_key(99, name))
        assert result["rows_read"] == 21 == result["rows_used"] + sum(result["skipped"].values())

    def test_they_stay_as_they_were_sent(self, tmp_path: Path, make_context: MakeContext) -> None:
        write(tmp_path / "a.jsonl", QUESTIONS)
        ctx = make_context("a.jsonl")
        before = made(ctx)
        answer(ctx, before[0])
        server = ctx.plan.server.model_copy(
            update={"profile": ctx.plan.server.profile.model_copy(update={"chat_template_kwargs": {"thinking": False}})}
        )
        after = made(make_context("a.jsonl", plan={"server": server.model_dump()}))
        assert [prompt.id for prompt in after] == [prompt.id for prompt in before]
        assert after[0].input_ids == before[0].input_ids
        assert after[1].input_ids != before[1].input_ids


class TestEarlierDataSets:
    @pytest.fixture
    def both(self, tmp_path: Path, make_context: MakeContext) -> tuple[StepContext, StepContext]:
        write(tmp_path / "a.jsonl", QUESTIONS)
        write(tmp_path / "b.jsonl", [*QUESTIONS[30:], *(f"own {number}" for number in range(30)), QUESTIONS[59]])
        first, second = make_context("a.jsonl", name="alpha"), make_context("b.jsonl", name="beta")
        plan = first.plan.model_copy(update={"datasets": first.plan.datasets + second.plan.datasets})
        for ctx in (first, second):
            ctx.plan = plan.only(ctx.dataset_name or "", keep_earlier=True)
        return first, second

    @pytest.mark.parametrize("second_first", [False, True])
    def test_a_shared_prompt_belongs_to_the_first_whoever_is_prepared_first(
        self, both: tuple[StepContext, StepContext], second_first: bool
    ) -> None:
        first, second = both
        results = [run(ctx) for ctx in (both[::-1] if second_first else both)]
        alpha, beta = (list(read_prompts(ctx.folder.prompts(ctx.dataset_name or ""))) for ctx in both)
        assert len(alpha) == 60
        assert len(beta) == 30
        assert not {prompt.id for prompt in alpha} & {prompt.id for prompt in beta}
        beta_result = results[0] if second_first else results[1]
        assert beta_result["skipped"] == {"duplicate": 1, "in_earlier_dataset": 30}
        assert run(second)["reused"]
        assert run(first)["reused"]

    def test_prepared_at_the_same_time(self, both: tuple[StepContext, StepContext]) -> None:
        threads = [threading.Thread(target=run, args=(ctx,)) for ctx in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(list(read_prompts(ctx.folder.prompts(ctx.dataset_name or "")))) for ctx in both] == [60, 30]

    def test_whoever_is_first_bounded_or_not(self, both: tuple[StepContext, StepContext]) -> None:
        first, second = both
        bounded = first.plan.datasets[0].model_copy(update={"max_prompts": 5})
        first.plan = first.plan.model_copy(update={"datasets": (bounded,)})
        run(first)
        assert run(second)["skipped"]["in_earlier_dataset"] == 30, "chosen or not"

    def test_waiting_for_whoever_reads_the_earlier_one(self, both: tuple[StepContext, StepContext]) -> None:
        first, second = both
        lock = FileLock(first.folder.prompts("alpha").parent / ".alpha.scan.lock")
        assert lock.acquire("scan")
        waits = threading.Event()
        second.progress = lambda message, **_: waits.set() if "waiting for the index of alpha" in message else None
        results: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: results.append(run(second)))
        thread.start()
        assert waits.wait(60)
        lock.release()
        thread.join()
        assert results[0]["prompts"] == 30

    def test_a_stop_ends_the_waiting(self, both: tuple[StepContext, StepContext]) -> None:
        first, second = both
        lock = FileLock(first.folder.prompts("alpha").parent / ".alpha.scan.lock")
        assert lock.acquire("scan")
        second.progress = lambda message, **_: second.stop.set() if "waiting for the index of alpha" in message else None
        with pytest.raises(StoppedError):
            run(second)
        lock.release()

    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_a_broken_data_set_does_not_fail_the_next(
        self, tmp_path: Path, both: tuple[StepContext, StepContext], monkeypatch: pytest.MonkeyPatch, processes: str
    ) -> None:
        _, second = both
        monkeypatch.setenv("DRAFTMILL_PROCESSES", processes)
        good = (tmp_path / "a.jsonl").read_bytes()
        for damage in (b'{"other": "schema"}\n', None):
            (tmp_path / "a.jsonl").write_bytes(damage) if damage else (tmp_path / "a.jsonl").unlink()
            assert run(second)["prompts"] == 60
            assert read_json(second.folder.prompts_meta("beta"))["not_compared"] == ["alpha"]
        (tmp_path / "a.jsonl").write_bytes(good)
        assert run(second)["prompts"] == 30, "once it can be read, it counts"

    def test_only_the_step_that_chooses_prompts_depends_on_them(self, both: tuple[StepContext, StepContext]) -> None:
        plan = both[1].plan
        assert [origin.name for origin in plan.earlier] == ["alpha"]
        assert plan.only("beta").earlier == ()
        assert plan.only("beta", keep_earlier=True) == plan
