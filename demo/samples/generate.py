"""Writes the bundled samples: eight files in the exact schemas of the eight published sources, from the texts in texts/*.yaml.

    python -m demo.samples.generate [FOLDER]

The outcome depends on nothing but this file and the texts, so the committed samples can be checked against it. Most rows are clean;
ugly.py adds some of the kinds that published data really holds.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from demo.samples import ugly

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]
SEED = 20260101

ULTRACHAT_ASKS = (
    "Explain {subject} to a curious ten-year-old.",
    "What should a beginner know about {subject}?",
    "Write a short paragraph about {subject} for a school newspaper.",
    "Give me three facts about {subject} that most people do not know.",
    "I have to give a talk about {subject} tomorrow. What is the most important point?",
    "Summarise what is known about {subject} in two sentences.",
    "Tell me about {subject} as if we were sitting at a kitchen table.",
)
SHAREGPT_ASKS = (
    "what's so interesting about {subject}?",
    "Act as a tour guide and tell visitors about {subject}.",
    "Make up a quiz question about {subject} and answer it.",
    "My teacher wants an essay about {subject}. Where do I begin?",
    "Is this right? {fact}",
    "Write a four-line poem about {subject}",
    "tl;dr of {subject} please",
)
FOLLOW_UPS = (
    "Can you say that in simpler words?",
    "Where could I read more about it?",
    "Thank you! Which part is most often misunderstood?",
)
CODE_WISHES = (
    "Keep it short and readable.",
    "Add type hints.",
    "Add a docstring with one example.",
    "Use nothing but the standard library.",
    "Explain the running time in one sentence.",
    "Write a unit test as well.",
    "Think of empty input.",
    "Show one call and its result.",
    "A beginner should be able to follow it.",
)
REPOSITORIES = (
    ("harbour-tools/tidebook", "tidebook/helpers.py"),
    ("northwind/ledgerlib", "src/ledgerlib/util.py"),
    ("openfield/cropcount", "cropcount/core.py"),
    ("lanternsoft/glow", "glow/common.py"),
    ("papermill-club/pagemark", "pagemark/text.py"),
    ("stonebridge/spanner", "spanner/shared.py"),
    ("quietroom/hushd", "hushd/lib.py"),
    ("millrace/wheelhouse", "wheelhouse/base.py"),
    ("ironbark/sapling", "sapling/tools.py"),
    ("seventh-street/tramline", "tramline/routes.py"),
)
SWE_SYSTEM = (
    "SETTING: You are a programmer at a command line with a file viewer.\n"
    "Commands: open PATH, search_file TEXT, edit FROM:TO, submit. Give one command at a time."
)


def texts(name: str) -> list[Row]:
    """One of the text files."""
    loaded: list[Row] = yaml.safe_load((HERE / "texts" / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def filled(tool: Row) -> Iterator[tuple[str, Row]]:
    """Every question about a tool, with the arguments it means."""
    names = list(tool["values"])
    for values in itertools.product(*tool["values"].values()):
        arguments = dict(zip(names, values, strict=True))
        for ask in tool["asks"]:
            yield ask.format(**arguments), arguments


def glaive() -> Iterator[Row]:
    """B1: system and chat as one string each, calls with their arguments in single quotes."""
    for tool in texts("tools"):
        parameters = {name: {"type": "string", "description": f"The {name}"} for name in tool["values"]}
        schema = {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": {"type": "object", "properties": parameters, "required": list(parameters)},
        }
        system = "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
        for ask, arguments in filled(tool):
            call = f"""{{"name": "{tool["name"]}", "arguments": '{json.dumps(arguments)}'}}"""
            turns = (
                f"USER: {ask}",
                f"ASSISTANT: <functioncall> {call} <|endoftext|>",
                f"FUNCTION RESPONSE: {json.dumps(tool['returns'])}",
                f"ASSISTANT: {tool['reply'].format(**arguments)} <|endoftext|>",
            )
            yield {"system": system + json.dumps(schema, indent=4) + "\n", "chat": "\n\n\n".join(turns) + "\n\n\n"}


def opencodeinstruct() -> Iterator[Row]:
    """B2: nine columns, all of them strings."""
    for number, (program, wish) in enumerate(itertools.product(texts("programs"), CODE_WISHES)):
        yield {
            "id": f"{number:032x}",
            "input": f"Write a Python function `{program['name']}` that {program['task']}. {wish}",
            "output": f"{program['note']}\n\n```python\n{program['code']}```",
            "domain": "generic",
            "generation_algorithm": "self-instruct",
            "llm_judgement": json.dumps({"logical correctness": {"score": 5, "justification": "The code does what is asked."}}),
            "unit_tests": json.dumps([program["test"]]),
            "tests_execution_status": json.dumps(["pass"]),
            "average_test_score": "1",
        }


def magicoder_oss() -> Iterator[Row]:
    """B3, first source: problem and solution."""
    frames = (
        "Your colleague needs a helper for a report. It {task}. Name it `{name}`.",
        "Complete the module so that it offers `{name}`, which {task}.",
        "During a review you notice that `{name}` is missing. Write it: it {task}.",
        "A student asks for a function that {task}. Answer with code.",
    )
    for number, (program, frame) in enumerate(itertools.product(texts("programs"), frames)):
        yield {
            "lang": "python",
            "raw_index": 1000 + number,
            "index": number,
            "seed": program["test"],
            "openai_fingerprint": "none",
            "problem": frame.format(**program),
            "solution": f"```python\n{program['code']}```\n\n{program['note']}",
        }


def magicoder_evol() -> Iterator[Row]:
    """B3, second source: instruction and response."""
    frames = (
        "Create a function in Python that {task}.",
        "Create a function in Python that {task}. It must not change its arguments.",
        "Explain how you would write a function that {task}, then write it.",
        "The following check fails because `{name}` does not exist yet:\n{test}\nMake it pass.",
        "Find the mistake. The function should be one that {task}, but {symptom}.",
    )
    for program, frame in itertools.product(texts("programs"), frames):
        yield {"instruction": frame.format(**program), "response": f"{program['note']}\n\n```python\n{program['code']}```"}


def sums(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Word problems: question, reasoning, answer."""
    chance = random.Random(seed)
    for number in range(count):
        boxes, each, given = chance.randint(3, 19), chance.randint(4, 24), chance.randint(2, 11)
        who = ("Amina", "Jonas", "Mei", "Pablo", "Ravi", "Sofia")[number % 6]
        what = ("apples", "stamps", "bolts", "seeds", "marbles")[number % 5]
        left = boxes * each - given
        ask = f"{who} has {boxes} boxes with {each} {what} each and gives away {given} {what}. How many {what} are left?"
        think = f"First, {boxes} times {each} is {boxes * each}. Then {boxes * each} minus {given} is {left}."
        yield ask, think, f"There are **{left}** {what} left."


def facts() -> Iterator[tuple[str, str]]:
    """Every fact with its subject."""
    for topic in texts("topics"):
        for fact in topic["facts"]:
            yield topic["subject"], fact


def reasoned(ask: str, think: str, answer: str) -> list[Row]:
    """A question and an answer that holds its reasoning."""
    return [{"role": "user", "content": ask}, {"role": "assistant", "content": f"<think>\n{think}\n</think>\n\n{answer}"}]


def mixturethoughts() -> Iterator[Row]:
    """B4: messages with reasoning in the answer, over code, mathematics and science."""
    for ask, think, answer in sums(80, SEED):
        yield {"messages": reasoned(ask, think, answer), "num_tokens": 90, "source": "demo/math"}
    for subject, fact in facts():
        ask = f"You read about {subject}: “{fact}” Reason step by step why this is so."
        yield {"messages": reasoned(ask, f"The question is about {subject}. {fact}", fact), "num_tokens": 80, "source": "demo/science"}
    for program in texts("programs"):
        ask = f"Write `{program['name']}`, which {program['task']}. Your code will be run with this check:\n{program['test']}"
        answer = f"```python\n{program['code']}```"
        yield {"messages": reasoned(ask, program["note"], answer), "num_tokens": 120, "source": "demo/code"}


def openthoughts() -> Iterator[Row]:
    """B5: each question several times, with different answers, as published; few different ones, so that it runs out of prompts."""
    for ask, think, answer in sums(40, SEED + 1):
        for attempt in ("", "Let me check that again. ", "Wait, I should count once more. ", "In short: "):
            value = f"<think>{attempt}{think}</think>{answer}"
            turns = [{"from": "human", "value": ask}, {"from": "gpt", "value": value}]
            yield {"difficulty": 3, "source": "demo", "domain": "math", "conversations": turns}


def ultrachat() -> Iterator[Row]:
    """B6: prompt, its id, and a conversation of several turns that begins with it."""
    for number, (ask, topic) in enumerate(itertools.product(ULTRACHAT_ASKS, texts("topics"))):
        prompt = ask.format(subject=topic["subject"])
        first, second = " ".join(topic["facts"][:2]), " ".join(topic["facts"][2:])
        messages = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": first},
            {"role": "user", "content": FOLLOW_UPS[number % 3]},
            {"role": "assistant", "content": second},
        ]
        yield {"prompt": prompt, "prompt_id": f"{number:064x}", "messages": messages}


def sharegpt() -> Iterator[Row]:
    """B7: conversations of many kinds, published as one JSON array."""
    for number, (ask, topic) in enumerate(itertools.product(SHAREGPT_ASKS, texts("topics"))):
        turns = [
            {"from": "human", "value": ask.format(subject=topic["subject"], fact=topic["facts"][number % 4])},
            {"from": "gpt", "value": " ".join(topic["facts"][: 1 + number % 4])},
        ]
        if number % 3 == 0:
            turns += [{"from": "human", "value": FOLLOW_UPS[number % 2]}, {"from": "gpt", "value": topic["facts"][3]}]
        yield {"id": f"demo{number:04d}_0", "conversations": turns}


def sweagent() -> Iterator[Row]:
    """B8: trajectories of an agent that mends a bug; the text of a turn is in `text`, the system prompt in `system_prompt`."""
    for (repository, path), program in itertools.product(REPOSITORIES, texts("programs")):
        right, spoilt = program["code"], program["code"].replace(*program["wrong"])
        issue = (
            f"We are in the repository {repository}. Please solve this issue:\n"
            f"ISSUE: `{program['name']}` in {path} is wrong: {program['symptom']}.\n"
            f"Expected: it {program['task']}.\nTo see it: {program['test']}"
        )
        steps = (
            ("ai", f"Let me look at the file first.\n```\nopen {path}\n```"),
            ("user", f"[File: {path}]\n{spoilt}"),
            ("ai", f"{program['note']} I will mend the line.\n```\nedit 1:{len(right.splitlines())}\n{right}end_of_edit\n```"),
            ("user", "File updated."),
            ("ai", "The check passes now.\n```\nsubmit\n```"),
        )
        empty: Row = {"system_prompt": None, "mask": False, "cutoff_date": "01.01.2026"}
        turns = [{"role": "system", "text": None} | empty | {"system_prompt": SWE_SYSTEM}, {"role": "user", "text": issue} | empty]
        turns += [{"role": role, "text": text} | empty for role, text in steps]
        yield {
            "instance_id": f"{repository.replace('/', '__')}-{program['name']}",
            "model_name": "demo-agent",
            "target": True,
            "trajectory": turns,
            "exit_status": "submitted",
            "generated_patch": f"--- a/{path}\n+++ b/{path}\n",
            "eval_logs": "1 passed",
        }


def mixed(clean: Iterable[Row], odd: Iterable[Row]) -> list[Row]:
    """Clean and ugly rows, shuffled the same way each time."""
    rows = [*clean, *odd]
    random.Random(SEED).shuffle(rows)
    return rows


def samples() -> dict[str, list[Row]]:
    """All rows by file name."""
    return {
        "B1_glaive": mixed(glaive(), ugly.glaive()),
        "B2_opencodeinstruct": mixed(opencodeinstruct(), ugly.opencodeinstruct()),
        "B3_magicoder_oss": mixed(magicoder_oss(), ugly.magicoder()),
        "B3_magicoder_evol": mixed(magicoder_evol(), ()),
        "B4_mixturethoughts": mixed(mixturethoughts(), ugly.mixturethoughts()),
        "B5_openthoughts": mixed(openthoughts(), ugly.openthoughts()),
        "B6_ultrachat": mixed(ultrachat(), ugly.ultrachat()),
        "B7_sharegpt": mixed(sharegpt(), ugly.sharegpt()),
        "B8_sweagent": mixed(sweagent(), ugly.sweagent()),
    }


def main(folder: Path) -> None:
    """Write all files. Signs that could trip a reader are written as JSON escapes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in samples().items():
        lines = (json.dumps(row, ensure_ascii=True) for row in rows)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
