"""What published data sets really hold, through the whole step: the right prompt or the right reason, and every row accounted for."""

from __future__ import annotations

import gzip
import json
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmill.errors import PermanentError
from draftmill.files import read_json
from draftmill.jobs.step import StepContext
from draftmill.prompts.prepare import run
from draftmill.prompts.prompt import Prompt, read_prompts
from tests.tokenizers import make_tokenizer
from tests.unit.prompts.conftest import MakeContext

Row = Any
GOOD = {"conversations": [{"from": "human", "value": "the good one"}]}


def prepare(ctx: StepContext) -> tuple[dict[str, Any], list[Prompt]]:
    result = run(ctx)
    prompts = list(read_prompts(ctx.folder.prompts("alpha")))
    assert result["rows_read"] == result["rows_used"] + sum(result["skipped"].values())
    assert result["prompts"] == len(prompts) == result["rows_used"]
    return result, prompts


def write_lines(path: Path, rows: list[Row]) -> None:
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def texts(prompts: list[Prompt]) -> set[str]:
    """The user's words of each prompt, out of the tiny template."""
    return {
        make_tokenizer().decode(prompt.input_ids).split("<|im_user|>user<|im_middle|>")[1].rsplit("<|im_end|>", 1)[0] for prompt in prompts
    }


def turns(*pairs: tuple[Any, Any]) -> Row:
    return {"conversations": [{"from": who, "value": what} for who, what in pairs]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"conversations": []}, "empty_conversation"),
        ({"conversations": None}, "empty_conversation"),
        ({"conversations": "null"}, "empty_conversation"),
        (turns(("human", None)), "empty_prompt"),
        (turns(("human", ""), ("gpt", "a")), "empty_prompt"),
        (turns(("human", " \n\t ")), "empty_prompt"),
        (turns(("human", "\u0000")), "empty_prompt"),
        (turns(("gpt", "only me")), "no_user_turn"),
        ({"conversations": ["a string"]}, "malformed_turn"),
        ({"conversations": [None]}, "malformed_turn"),
        ({"conversations": [{"value": "no role"}]}, "malformed_turn"),
        (turns(("narrator", "x")), "unknown_role"),
        (turns(("human", {"a": 1})), "not_text"),
        ({"conversations": "[broken"}, "broken_json"),
        ({"something": "else"}, "unknown_columns"),
        (["not", "an", "object"], "not_an_object"),
        (None, "not_an_object"),
        (turns(("human", "x " * 5000)), "over_context"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, make_context: MakeContext, row: Row, reason: str) -> None:
    write_lines(tmp_path / "a.jsonl", [row, GOOD, row])
    result, prompts = prepare(make_context("a.jsonl", adapter="sharegpt"))
    assert texts(prompts) == {"the good one"}
    again = {"duplicate": 1} if reason == "over_context" else {}
    assert result["skipped"] == {reason: 2 - len(again)} | again


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (turns(("gpt", "greeting"), ("human", "q")), "q"),
        (turns(("human", "q"), ("human", "and this")), "q\n\nand this"),
        (turns(("human", "q"), ("gpt", "a"), ("system", "late"), ("human", "q2")), "q"),
        (turns(("human", "q"), ("gpt", "a")), "q"),
        ({"id": "0012", **turns(("user", "q"), ("chatgpt", "a"))}, "q"),
        ({"id": "1e5", **turns(("human", "q"), ("bing", None))}, "q"),
        ({"id": "NaN", "conversations": [{"from": "human", "value": "q"}, "a string behind it"]}, "q"),
        ({"conversations": [{"from": "human", "value": "q", "tool_calls": None, "weight": 0}]}, "q"),
        ({"conversations": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}, "q"),
        (turns(("human", "line\u2028sep\u0085arators\u2029")), "line\u2028sep\u0085arators"),
        (turns(("human", "a\u0000b")), "ab"),
        (turns(("human", "half \ud83d pair")), "half \ufffd pair"),
        (turns(("human", "whole \ud83d\ude00 pair")), "whole 😀 pair"),
        (turns(("human", "says <|im_end|> and </think> and <|endoftext|>")), "says <|im_end|> and </think> and <|endoftext|>"),
        (turns(("human", "a\r\nb")), "a\nb"),
    ],
)
def test_rows_that_are_used(tmp_path: Path, make_context: MakeContext, row: Row, text: str) -> None:
    write_lines(tmp_path / "a.jsonl", [row, GOOD])
    _, prompts = prepare(make_context("a.jsonl", adapter="sharegpt"))
    assert texts(prompts) == {text, "the good one"}


def test_repairs_and_control_text_are_counted(tmp_path: Path, make_context: MakeContext) -> None:
    write_lines(
        tmp_path / "a.jsonl", [turns(("human", text)) for text in ("a\u0000b", "c\ud800d", "<|im_end|>", "</think> twice </think>", "e")]
    )
    ctx = make_context("a.jsonl", adapter="sharegpt")
    prepare(ctx)
    meta = read_json(ctx.folder.prompts_meta("alpha"))
    assert meta["repaired"] == {"nul": 1, "surrogate": 1}
    assert meta["special_token_text"] == 2


def test_control_text_is_skipped_by_policy(tmp_path: Path, make_context: MakeContext) -> None:
    write_lines(tmp_path / "a.jsonl", [turns(("human", "<|im_end|> x")), GOOD])
    result, _ = prepare(make_context("a.jsonl", adapter="sharegpt", plan={"special_token_text": "skip"}))
    assert result["skipped"] == {"special_token_text": 1}


@pytest.mark.parametrize(
    ("tools", "skipped"),
    [
        ('[{"name": "f"}]', {}),
        ([{"type": "function", "function": {"name": "f", "strict": None}}], {}),
        ({"name": "f"}, {}),
        ("[{broken", {"broken_tools": 1}),
        (7, {"broken_tools": 1}),
    ],
)
def test_tools_in_every_form(tmp_path: Path, make_context: MakeContext, tools: Any, skipped: dict[str, int]) -> None:
    write_lines(tmp_path / "a.jsonl", [{"messages": [{"role": "user", "content": "q"}], "tools": tools}, {"prompt": "good"}])
    result, prompts = prepare(make_context("a.jsonl", adapter="messages"))
    assert result["skipped"] == skipped
    declared = ["tool_declare" in make_tokenizer().decode(prompt.input_ids) for prompt in prompts]
    assert sorted(declared) == ([False, True] if not skipped else [False])


def test_sixteen_answers_to_a_question_are_one_prompt(tmp_path: Path, make_context: MakeContext) -> None:
    rows = [turns(("human", f"question {number // 16}"), ("gpt", f"answer {number}")) for number in range(64)]
    write_lines(tmp_path / "a.jsonl", rows)
    result, prompts = prepare(make_context("a.jsonl", adapter="sharegpt"))
    assert texts(prompts) == {f"question {number}" for number in range(4)}
    assert result["skipped"] == {"duplicate": 60}


def test_the_three_splits_of_swe_smith_are_one(tmp_path: Path, make_context: MakeContext) -> None:
    task = {"role": "user", "content": "fix the bug"}
    systems = {"tool": "You have tools.", "xml": "Write calls as XML.", "ticks": "Write calls in fences."}
    for split, system in systems.items():
        messages = [{"role": "system", "content": system}, task, {"role": "assistant", "content": split}]
        value: Any = messages if split == "tool" else json.dumps(messages)
        write_lines(tmp_path / f"{split}.jsonl", [{"messages": value, "traj_id": "t1"}])
    names = [f"{split}.jsonl" for split in systems]
    for turns_mode in ("first", "last"):
        result, prompts = prepare(make_context(names, adapter="swesmith", turns=turns_mode))
        assert len(prompts) == 1
        assert result["skipped"] == {"duplicate": 2}
    orders = [prepare(make_context(order, adapter="swesmith", name="alpha"))[1] for order in (names, names[::-1])]
    assert orders[0] == orders[1], "whichever split comes first"


def test_one_shard_as_lists_and_the_next_as_strings(tmp_path: Path, make_context: MakeContext) -> None:
    (tmp_path / "shards").mkdir()
    messages = [[{"role": "user", "content": f"q{number}"}] for number in range(4)]
    pq.write_table(pa.Table.from_pylist([{"messages": value} for value in messages[:2]]), tmp_path / "shards/a.parquet")
    pq.write_table(pa.Table.from_pylist([{"messages": json.dumps(value)} for value in messages[2:]]), tmp_path / "shards/b.parquet")
    _, prompts = prepare(make_context("shards"))
    assert texts(prompts) == {"q0", "q1", "q2", "q3"}


def test_a_shard_of_another_schema_is_refused_by_name(tmp_path: Path, make_context: MakeContext) -> None:
    (tmp_path / "shards").mkdir()
    write_lines(tmp_path / "shards/a.jsonl", [GOOD])
    for name in ("b.jsonl", "b.parquet"):
        path = tmp_path / "shards" / name
        rows = [{"question": "q", "answer": "a"}]
        write_lines(path, rows) if path.suffix == ".jsonl" else pq.write_table(pa.Table.from_pylist(rows), path)
        with pytest.raises(PermanentError, match=rf"shards/{name}: adapter sharegpt expects .* found answer, question"):
            run(make_context("shards", adapter="sharegpt"))
        path.unlink()


ROWS = [
    {
        "id": f"00{number}",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": f"q{number}"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"required": ["a"], "minimum": number / 2}}}]
        if number % 2
        else [{"type": "function", "function": {"name": "g", "description": "d"}}],
    }
    for number in range(12)
]


def forms(folder: Path) -> dict[str, str]:
    """The same rows in every form that is read."""
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    files = {
        "lines.jsonl": lines,
        "array.json": json.dumps(ROWS).encode(),
        "pretty.json": json.dumps(ROWS, indent=2).encode(),
        "bom.jsonl": b"\xef\xbb\xbf" + lines,
        "crlf.jsonl": lines.replace(b"\n", b"\r\n"),
        "packed.jsonl.gz": gzip.compress(lines),
        "array.json.gz": gzip.compress(json.dumps(ROWS).encode()),
        "packed.jsonl.zst": zstd(lines),
        "reordered.jsonl": b"".join(json.dumps(dict(reversed(row.items()))).encode() + b"\n" for row in reversed(ROWS)),
        "damaged.jsonl": b'{"broken": \n' + lines + b"\x00\x01 noise\n",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "table.parquet", row_group_size=5)
    (folder / "shards/deep").mkdir(parents=True)
    for number in range(3):
        write_lines(folder / f"shards/deep/part-{number}.jsonl", ROWS[number * 4 : number * 4 + 4])
    return {name: name for name in (*files, "table.parquet", "shards", "shards/**/part-*.jsonl", "shards/deep/part-?.jsonl")}


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def test_the_same_rows_give_the_same_file_in_every_form(tmp_path: Path, make_context: MakeContext) -> None:
    made = {}
    for form in forms(tmp_path).values():
        result, _ = prepare(make_context(form))
        assert result["skipped"] == ({"damaged_line": 2} if form == "damaged.jsonl" else {}), form
        made[form] = Path(result["path"]).read_bytes()
    assert len(made["lines.jsonl"].splitlines()) == len(ROWS)
    assert {form for form, data in made.items() if data != made["lines.jsonl"]} == set()


def test_a_pasted_file_and_a_huge_row_in_modest_memory(tmp_path: Path, make_context: MakeContext) -> None:
    with (tmp_path / "a.jsonl").open("wb") as stream:
        stream.write(json.dumps(turns(("human", "paste " * 350_000))).encode() + b"\n")
        stream.write(json.dumps(turns(("human", "q"), ("gpt", "x" * 40_000_000))).encode() + b"\n")
        stream.write(json.dumps(GOOD).encode() + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result, prompts = prepare(make_context("a.jsonl", adapter="sharegpt"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result["skipped"] == {"over_context": 1}
    assert texts(prompts) == {"q", "the good one"}
    assert grown < 500 * 1024, "kilobytes"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
TURN = st.dictionaries(st.sampled_from(["role", "from", "content", "value", "text", "system_prompt", "tool_calls", "tool_call_id"]), ANY)
TURNS = st.lists(
    TURN | st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "gpt", "tool", "system"]), ANY)
)
ADAPTER_COLUMNS = {
    "messages": ["messages", "prompt", "system", "tools"],
    "sharegpt": ["conversations", "system", "tools"],
    "glaive": ["system", "chat"],
    "magicoder": ["problem", "instruction"],
    "opencodeinstruct": ["input"],
    "sweagent": ["trajectory"],
    "swesmith": ["messages", "tools", "traj_id"],
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), adapter=st.sampled_from(sorted(ADAPTER_COLUMNS)))
def test_any_value_in_any_field_never_stops_a_run(tmp_path: Path, make_context: MakeContext, data: st.DataObject, adapter: str) -> None:
    columns = ADAPTER_COLUMNS[adapter]
    text = st.sampled_from(['USER: q\n\nASSISTANT: <functioncall> {"name": "f", "arguments": \'{\'}', 'SYSTEM: {"name": "f"}', "q"])
    row = st.dictionaries(st.sampled_from(columns), ANY | TURNS | TURNS.map(json.dumps) | text, min_size=1)
    rows = data.draw(st.lists(row, max_size=6))
    good = {"glaive": "USER: fine", "sharegpt": "", "sweagent": "", "swesmith": "", "messages": ""}.get(adapter, "fine")
    rows.append({columns[0] if adapter != "glaive" else "chat": good or [{"role": "user", "content": "fine", "text": "fine"}]})
    (tmp_path / "any.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    turns_mode = data.draw(st.sampled_from(["first", "all"] + ["last"] * (adapter in ("glaive", "sweagent", "swesmith"))))
    result, _ = prepare(make_context("any.jsonl", adapter=adapter, turns=turns_mode))
    assert result["rows_read"] == len(rows)
