"""Rows of the kinds that published data sets really hold: empty, broken, doubled, spelled strangely.

A reader uses what can be used, counts the rest by reason, and never stops for any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]

CONTROL_TEXT = "What do the marks <|im_end|>, </think> and <|endoftext|> mean in a chat file?"
ODD_SIGNS = "Count the signs of this text:\u2028one\u0085two\x00three\u00a0four 👩\u200d💻 é e\u0301"
LONE_SURROGATE = "What is wrong with this emoji: \ud83d ?"
LONG_PASTE = "Summarise this log file.\n" + "2026-01-01 00:00:00 INFO heartbeat of worker seven is on time\n" * 400


def glaive() -> Iterator[Row]:
    """No functions, broken functions, two functions at once, an empty chat, Windows line ends, control text."""
    plain = "SYSTEM: You are a helpful assistant, with no access to external functions."
    two = '{"name": "tell_time", "parameters": {}}\n\n{"name": "roll_dice", "parameters": {}}'
    yield {"system": plain, "chat": "USER: What is the capital of Portugal?\n\n\nASSISTANT: It is Lisbon. <|endoftext|>\n\n\n"}
    yield {
        "system": "SYSTEM: Use these functions -\n{broken: json",
        "chat": "USER: Roll a die.\n\n\nASSISTANT: It is a four. <|endoftext|>",
    }
    yield {"system": f"SYSTEM: Use them if required -\n{two}\n", "chat": "USER: Roll two dice at noon.\n\n\nASSISTANT: Done. <|endoftext|>"}
    yield {"system": plain, "chat": ""}
    yield {"system": plain, "chat": f"USER: {CONTROL_TEXT}\r\n\r\n\r\nASSISTANT: They end a turn.\r\n"}
    yield {"system": "", "chat": "USER: Hello!\n\n\nASSISTANT: Hello, how can I help? <|endoftext|>\n\n\n"}


def opencodeinstruct() -> Iterator[Row]:
    """An empty question, strange signs, and a paste that no context holds."""
    rest = dict.fromkeys(("domain", "generation_algorithm", "llm_judgement", "unit_tests", "tests_execution_status"), "")
    for number, text in enumerate(("", "   \n", ODD_SIGNS, CONTROL_TEXT, LONG_PASTE)):
        yield {"id": f"odd-{number}", "input": text, "output": "An answer.", **rest, "average_test_score": "nan"}


def magicoder() -> Iterator[Row]:
    """A doubled row, a lone surrogate, a problem of the wrong type."""
    row = {"lang": "python", "raw_index": 1, "index": 1, "seed": "", "openai_fingerprint": "none", "solution": "pass"}
    yield row | {"problem": "Write a function that adds two numbers."}
    yield row | {"problem": "Write a function that adds two numbers."}
    yield row | {"problem": LONE_SURROGATE}
    yield row | {"problem": None}
    yield row | {"problem": ODD_SIGNS}


def mixturethoughts() -> Iterator[Row]:
    """No messages, and messages that start in the wrong place."""
    yield {"messages": None, "num_tokens": 0, "source": "demo/odd"}
    yield {"messages": [], "num_tokens": 0, "source": "demo/odd"}
    yield {"messages": [{"role": "assistant", "content": "I begin."}], "num_tokens": 3, "source": "demo/odd"}
    yield {"messages": [{"role": "user", "content": None}], "num_tokens": 0, "source": "demo/odd"}
    turns = [("system", "Answer briefly."), ("user", CONTROL_TEXT), ("assistant", "<think>Hm.</think>They are marks.")]
    yield {"messages": [{"role": role, "content": content} for role, content in turns], "num_tokens": 9, "source": "demo/odd"}


def openthoughts() -> Iterator[Row]:
    """Turns that are missing, null, plain strings or out of order."""
    base = {"difficulty": None, "source": "demo", "domain": "odd"}
    yield base | {"conversations": []}
    yield base | {"conversations": None}
    yield base | {"conversations": ["a turn that is a string"]}
    yield base | {"conversations": [{"from": "human", "value": None}]}
    yield base | {
        "conversations": [{"from": "gpt", "value": "I begin."}, {"from": "human", "value": "And I follow. What is two plus two?"}]
    }
    yield base | {"system": "Think first.", "conversations": [{"from": "human", "value": "Is ninety-one prime?"}]}


def ultrachat() -> Iterator[Row]:
    """A prompt that differs from its conversation, and rows with one of the two only."""
    turns = [{"role": "user", "content": "Name a river in Austria."}, {"role": "assistant", "content": "The Danube."}]
    yield {"prompt": "Name a river in Spain.", "prompt_id": "0012", "messages": turns}
    yield {"prompt": "Name a lake in Finland.", "prompt_id": "1e5", "messages": []}
    yield {"prompt": "", "prompt_id": "NaN", "messages": None}
    yield {"prompt": ODD_SIGNS, "prompt_id": "", "messages": [{"role": "user", "content": ODD_SIGNS}]}


def sharegpt() -> Iterator[Row]:
    """Ids that look like numbers, other assistants, doubled turns, empty ones."""
    yield {"id": "0012", "conversations": []}
    yield {"id": "1e5", "conversations": None}
    yield {"id": "NaN", "conversations": [{"from": "gpt", "value": "I speak first."}, {"from": "human", "value": "Then I ask: why?"}]}
    yield {"id": 7, "conversations": [{"from": "user", "value": "Say hello in Welsh."}, {"from": "bing", "value": "Helo."}]}
    yield {"id": "two", "conversations": [{"from": "human", "value": "One moment."}, {"from": "human", "value": "What is a fjord?"}]}
    yield {"id": "str", "conversations": ["text", {"from": "human", "value": LONE_SURROGATE}]}
    yield {"id": "null", "conversations": [{"from": "human", "value": ""}, {"from": "chatgpt", "value": "You said nothing."}]}
    yield {"id": "ctl", "conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": CONTROL_TEXT}]}


def sweagent() -> Iterator[Row]:
    """A trajectory without turns, and one whose user says nothing."""
    base = {"model_name": "demo-agent", "target": False, "exit_status": "early_exit", "generated_patch": "", "eval_logs": ""}
    empty = {"system_prompt": None, "mask": False, "cutoff_date": None}
    yield base | {"instance_id": "odd-1", "trajectory": []}
    yield base | {"instance_id": "odd-2", "trajectory": [{"role": "user", "text": None, **empty}]}
    yield base | {"instance_id": "odd-3", "trajectory": [{"role": "user", "text": LONG_PASTE, **empty}]}
