"""Each schema, in both variants where there are two: the messages, the tools, and the error for columns that nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.sources.adapters import ADAPTERS, Adapter, make_adapter
from draftmill.sources.chat import SkipRow


def read(adapter: Adapter | str, row: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    made = make_adapter(adapter) if isinstance(adapter, str) else adapter
    conversation = made.conversation(row)
    return list(conversation.messages), conversation.tools


USER = {"role": "user", "content": "q"}

GLAIVE = {
    "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
    '{\n  "name": "convert",\n  "parameters": {"type": "object", "required": ["a"]}\n}\n\n{"name": "tell {time}", "parameters": {}}\n',
    "chat": 'USER: Convert 500 USD.\n\n\nASSISTANT: <functioncall> {"name": "convert", "arguments": \'{"a": "it\'s", "b": 1}\'} '
    '<|endoftext|>\n\n\nFUNCTION RESPONSE: {"result": 425}\n\n\nASSISTANT: It is 425. <|endoftext|>\n\n\nUSER: Thanks.\n\n\n'
    "ASSISTANT: You are welcome. <|endoftext|>\n\n\n",
}


class TestGlaive:
    def test_definitions_calls_and_results(self) -> None:
        messages, tools = read("glaive", GLAIVE)
        assert tools == [
            {"type": "function", "function": {"name": "convert", "parameters": {"type": "object", "required": ["a"]}}},
            {"type": "function", "function": {"name": "tell {time}", "parameters": {}}},
        ]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert messages[0]["content"] == "Convert 500 USD."
        call = messages[1]["tool_calls"][0]
        assert call["id"] == "functions.convert:0"
        assert call["function"] == {"name": "convert", "arguments": {"a": "it's", "b": 1}}
        assert messages[2] == {"role": "tool", "content": '{"result": 425}', "tool_call_id": "functions.convert:0"}
        assert messages[3]["content"] == "It is 425."

    def test_a_system_prompt_without_functions_stays(self) -> None:
        row = {"system": "SYSTEM: You are a helpful assistant, with no access to external functions.", "chat": "USER: q\n\nASSISTANT: a"}
        messages, tools = read("glaive", row)
        assert messages[0] == {"role": "system", "content": "You are a helpful assistant, with no access to external functions."}
        assert tools is None

    def test_arguments_as_an_object_and_windows_line_ends(self) -> None:
        chat = 'USER: q\r\n\r\nASSISTANT: Let me see. <functioncall> {"name": "f", "arguments": {"a": 1}}\r\n\r\nUSER: next\r\n'
        messages, _ = read("glaive", {"system": None, "chat": chat})
        assert messages[1]["content"] == "Let me see."
        assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
        assert messages[2]["content"] == "next"

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"system": "SYSTEM: -\n{broken", "chat": "USER: q"}, "broken_tools"),
            ({"system": 'SYSTEM: -\n{"name": 3}', "chat": "USER: q"}, "broken_tools"),
            ({"system": "", "chat": ""}, "empty_conversation"),
            ({"system": "", "chat": "no marks"}, "empty_conversation"),
            ({"system": 5, "chat": "USER: q"}, "not_text"),
            ({"prompt": "q"}, "unknown_columns"),
        ],
    )
    def test_broken_rows(self, row: dict[str, Any], reason: str) -> None:
        with pytest.raises(SkipRow) as caught:
            read("glaive", row)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("adapter", "row"),
    [
        ("opencodeinstruct", {"id": "1", "input": " q\n", "output": "a"}),
        ("magicoder", {"lang": "python", "problem": "q", "solution": "a"}),
        ("magicoder", {"instruction": "q", "response": "a"}),
        ("messages", {"messages": [{"role": "user", "content": "q"}], "num_tokens": 3, "source": "s"}),
        ("messages", {"messages": json.dumps([{"role": "user", "content": "q"}])}),
        ("messages", {"messages": None, "prompt": "q"}),
        ("messages", {"messages": [], "prompt": "q"}),
        ("sharegpt", {"difficulty": None, "conversations": [{"from": "human", "value": "q"}]}),
        ("sharegpt", {"system": "", "conversations": [{"from": "user", "value": "q"}]}),
        ("sharegpt", {"id": "0012", "messages": [{"role": "user", "content": "q"}]}),
        ("sweagent", {"instance_id": "i", "trajectory": [{"role": "user", "text": "q", "system_prompt": None, "mask": False}]}),
        ("swesmith", {"messages": json.dumps([{"role": "user", "content": "q"}])}),
        ("swesmith", {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}),
    ],
)
def test_a_user_turn_is_found_in_every_schema(adapter: str, row: dict[str, Any]) -> None:
    assert read(adapter, row)[0] == [USER]


def test_where_prompt_and_messages_differ_the_messages_are_the_conversation() -> None:
    row = {"prompt": "another question", "prompt_id": "x", "messages": [{"role": "user", "content": "q"}]}
    assert read("messages", row)[0] == [USER]


def test_a_system_column_is_used_unless_the_conversation_has_its_own() -> None:
    system = {"role": "system", "content": "s"}
    row: dict[str, Any] = {"system": "s", "conversations": [{"from": "human", "value": "q"}]}
    assert read("sharegpt", row)[0] == [system, USER]
    row["conversations"].insert(0, {"from": "system", "value": "own"})
    assert read("sharegpt", row)[0] == [{"role": "system", "content": "own"}, USER]


@pytest.mark.parametrize(
    "form", [lambda tools: tools, json.dumps, lambda tools: tools[0], lambda tools: [json.dumps(tool) for tool in tools]]
)
def test_tools_as_list_string_dict_or_list_of_strings(form: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert read("messages", {"messages": [USER], "tools": form(tools)})[1] == tools


def test_broken_tools_skip_the_row() -> None:
    with pytest.raises(SkipRow, match="broken_tools"):
        read("messages", {"messages": [USER], "tools": "[{]"})


def test_an_agents_system_prompt_is_in_a_column_of_its_own() -> None:
    trajectory = [
        {"role": "system", "text": None, "system_prompt": "SETTING", "mask": True},
        {"role": "user", "text": "issue", "system_prompt": None},
        {"role": "ai", "text": "open x", "system_prompt": ""},
        {"role": "user", "text": "output", "system_prompt": ""},
    ]
    for empty in (None, ""):
        trajectory[0]["text"] = empty
        messages, _ = read("sweagent", {"trajectory": trajectory})
        assert [message["content"] for message in messages] == ["SETTING", "issue", "open x", "output"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]


def test_tool_calls_of_swe_smith() -> None:
    messages = [
        {"role": "user", "content": "task"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": {"name": "bash", "arguments": '{"c": 1}'}}],
        },
        {"role": "tool", "content": [{"type": "text", "text": "out"}], "tool_call_ids": ["toolu_1"]},
    ]
    found, _ = read("swesmith", {"messages": json.dumps(messages), "resolved": True})
    assert found[1]["tool_calls"][0]["id"] == "functions.bash:0"
    assert found[2] == {"role": "tool", "content": "out", "tool_call_id": "functions.bash:0"}


def test_broken_json_in_a_string() -> None:
    with pytest.raises(SkipRow, match="broken_json"):
        read("swesmith", {"messages": '[{"role": "user", "content": "cut'})


class TestGeneric:
    def test_a_prompt_column(self) -> None:
        adapter = make_adapter("generic", {"prompt": "question", "system": "persona", "tools": "functions"})
        row = {"question": "q", "persona": "s", "functions": [{"name": "f"}], "other": 1}
        assert read(adapter, row) == ([{"role": "system", "content": "s"}, USER], [{"type": "function", "function": {"name": "f"}}])
        assert set(adapter.columns) == {"question", "persona", "functions"}

    def test_a_messages_column_with_its_own_keys(self) -> None:
        adapter = make_adapter("generic", {"messages": "dialogue", "role": "speaker", "content": "utterance"})
        row = {"dialogue": [{"speaker": "user", "utterance": "q", "role": "assistant", "content": "not this"}]}
        assert read(adapter, row)[0] == [USER]

    @pytest.mark.parametrize("columns", [{}, {"prompt": "a", "messages": "b"}, {"prompt": "a", "question": "b"}])
    def test_columns_that_make_no_sense(self, columns: dict[str, str]) -> None:
        with pytest.raises(PermanentError, match="columns:"):
            make_adapter("generic", columns)


def test_unknown_columns_are_an_error_that_lists_both_sides() -> None:
    with pytest.raises(PermanentError) as caught:
        make_adapter("magicoder").check_columns(["question", "answer"], "data/x.parquet")
    for words in ("data/x.parquet", "answer, question", "problem, instruction", "generic"):
        assert words in str(caught.value)


def test_unknown_adapters() -> None:
    with pytest.raises(PermanentError, match="known: generic"):
        make_adapter("alpaca")


def test_every_adapter_says_which_columns_it_reads() -> None:
    for name, adapter in ADAPTERS.items():
        assert adapter.name == name
        assert name == "generic" or make_adapter(name).columns
