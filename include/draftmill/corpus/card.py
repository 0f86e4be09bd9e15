"""README.md of a corpus: what a stranger needs to know before using it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

SAMPLE_CHARACTERS = 600

MEANINGS = {
    "empty": "no token of the answer says anything",
    "inconsistent": "the number of tokens or the finish reason contradicts itself",
    "near_duplicates": "nine of ten phrases are those of an earlier answer of the data set",
    "no_input_hash": "written by an old version, which did not record what was sent",
    "no_output_ids": "no token came back",
    "other_prompt": "the prompt has been rendered differently since it was sent",
    "outside_vocabulary": "a token id that the model does not have",
    "prompt_missing": "its prompt is gone",
    "repetition": "a loop that says the same again and again",
    "replacement_characters": "text with U+FFFD, which stands for bytes that are no character",
    "truncated": "cut at the limit on new tokens",
    "unclosed_reasoning": "ended before its reasoning did, and so has no answer",
}
"""What each doubt means, for a stranger."""


def table(header: list[str], rows: Iterable[list[Any]]) -> list[str]:
    """A Markdown table. Columns of text stand left, numbers and percentages right."""
    body = list(rows)
    marks = ["---" if all(_is_text(row[number]) for row in body) else "---:" for number in range(len(header))]
    return [_cells(header), _cells(marks), *map(_cells, body), ""]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not value.endswith("%")


def _cells(values: list[Any]) -> str:
    return "| " + " | ".join(_cell(value) for value in values) + " |"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|").replace("\n", " ")


def write_card(manifest: dict[str, Any], charts: list[str], text_charts: list[str], samples: list[dict[str, Any]]) -> str:
    """The card of the corpus that `manifest` describes (files not needed). `charts`: PNG files below `charts/`."""
    sections = [
        _front_matter(manifest),
        _introduction(manifest),
        _fields(),
        _contents(manifest),
        _origin(manifest),
        _licences(manifest),
        _quality(manifest),
        _lengths(manifest, charts, text_charts),
        _vocabulary(manifest),
        _samples(samples),
        _use(manifest),
    ]
    return "\n".join(line for section in sections for line in section)


def _front_matter(manifest: dict[str, Any]) -> list[str]:
    """What dataset hubs read; `configs` makes `load_dataset(folder)` find the splits."""
    splits = {"train": manifest["train"], **({"held_out": manifest["held_out"]} if manifest["held_out"] else {})}
    return [
        "---",
        f"pretty_name: {manifest['campaign']}",
        "license: other",
        "tags: [speculative-decoding, eagle3, draft-model, on-policy]",
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(f"  - {{split: {split}, path: {path}}}" for split, path in splits.items()),
        "---",
        "",
    ]


def _introduction(manifest: dict[str, Any]) -> list[str]:
    totals = manifest["totals"]
    lines = [
        f"# {manifest['campaign']}: training data for a speculative-decoding drafter",
        "",
        *([manifest["description"], ""] if manifest["description"] else []),
        (
            f"The prompts of {len(manifest['datasets'])} data sets, answered by `{manifest['model']['name']}` itself, as token ids. "
            "A drafter (EAGLE-3) trained on it learns to predict what this model says. Every row is exactly what the server was "
            "sent and what it generated: nothing was decoded and encoded again. "
            "The loss mask is 1 on generated tokens and 0 on the prompt, unshifted."
        ),
        "",
        *table(
            ["split", "rows", "tokens", "of these with loss"],
            [
                ["train", totals["rows"], totals["total_tokens"], totals["loss_tokens"]],
                ["held out", totals["held_out_rows"], totals["held_out_total_tokens"], totals["held_out_loss_tokens"]],
            ],
        ),
        (
            f"Made on {manifest['created_at']} by draftmill {manifest['draftmill']['version']} "
            f"(code `{manifest['draftmill']['code_hash'][:12]}`). All details are in `manifest.json`."
        ),
        "",
    ]
    notes = [f"{name}: {why}" for kind in ("left_out", "incomplete") for name, why in manifest[kind].items()]
    if notes:
        lines += [
            "**This is a partial corpus.** Not all data sets of the campaign were finished:",
            "",
            *(f"- {note}" for note in notes),
            "",
        ]
    return lines


def _fields() -> list[str]:
    return [
        "## A row",
        "",
        *table(
            ["field", "meaning"],
            [
                ["`id`", "of the prompt, from its content"],
                ["`dataset`", "where the prompt comes from"],
                ["`conversation`, `turn`", "rows of one conversation share the first; all of them are in one split"],
                ["`prompt_tokens`, `completion_tokens`", "how many tokens were sent, and how many came back"],
                ["`finish_reason`", "`stop`: the model ended its answer; `length`: it was cut"],
                ["`input_ids`", "what was sent, then what came back"],
                ["`loss_mask`", "0 for each token sent, 1 for each that came back"],
            ],
        ),
    ]


def _contents(manifest: dict[str, Any]) -> list[str]:
    rows = [
        [
            name,
            entry["responses"],
            sum(entry["dropped"].values()),
            *_left_by_merge(entry),
            entry["train"],
            entry["held_out"],
            entry["loss_tokens"],
        ]
        for name, entry in manifest["datasets"].items()
    ]
    return [
        "## Data sets",
        "",
        *table(["data set", "responses", "dropped", "not taken", "train", "held out", "tokens with loss"], rows),
        (
            "Responses = dropped + not taken + train + held out. Dropped: by the quality policies below. Not taken: longer than the "
            "maximum, outside the data set's weight, or the prompt of an earlier data set."
        ),
        "",
    ]


def _left_by_merge(entry: dict[str, Any]) -> list[int]:
    return [entry["too_long"] + entry["not_sampled"] + entry["doubled_id"]]


def _origin(manifest: dict[str, Any]) -> list[str]:
    model, server = manifest["model"], manifest["server"]
    lines = [
        "## How it came to be",
        "",
        (
            f"- Model: `{model['name']}`, vocabulary {model['vocab_size']:,}; tokenizer `{model['tokenizer_hash'][:12]}`, "
            f"chat template `{model['template_hash'][:12]}`."
        ),
        f"- Server profile: `{server['profile']}`.",
        *(_server_line(name, entry) for name, entry in server["answered_by"].items()),
        *(f"- Sampling: {settings}: {rows:,} responses." for settings, rows in _samplings(manifest)),
        f"- Seed of order and splits: {manifest['sampling']['seed']}.",
    ]
    for name, entry in manifest["datasets"].items():
        lines += [f"- {name}: {_source(source)}" for source in entry["sources"]]
    if manifest["parent"]:
        lines.append(f"- Replaces the corpus whose manifest is `{manifest['parent'][:12]}`.")
    return [*lines, ""]


def _server_line(fingerprint: str, entry: dict[str, Any]) -> str:
    known = f"SGLang {entry['version']}" if entry["version"] else "version not recorded"
    return f"- Answered by server `{fingerprint or 'unknown'}` ({known}): {entry['rows']:,} rows."


def _samplings(manifest: dict[str, Any]) -> list[tuple[str, int]]:
    """The sampling parameters that were sent, with the number of responses, most frequent first."""
    responses: Counter[str] = Counter()
    for entry in manifest["datasets"].values():
        for sampling in entry["samplings"]:
            settings = ", ".join(f"{name} {value}" for name, value in sampling["sampling"].items())
            responses[settings or "the server's defaults"] += sampling["rows"]
    return responses.most_common()


def _source(source: dict[str, Any]) -> str:
    name = source.get("hub") or source.get("path") or "unknown"
    revision = source.get("commit") or source.get("revision")
    return f"`{name}`" + (f" at `{revision}`" if revision else "")


def _licences(manifest: dict[str, Any]) -> list[str]:
    lines = [
        "## Licences",
        "",
        *table(["data set", "licence of its prompts"], [[name, entry["licence"]] for name, entry in manifest["datasets"].items()]),
    ]
    contested = [name for name, entry in manifest["datasets"].items() if entry["licence_contested"]]
    if contested:
        lines += [
            f"**Contested or unclear: {', '.join(contested)}.** Settle their terms before publishing this corpus or a model trained on it.",
            "",
        ]
    return [*lines, "The answers are the model's; its licence applies to what may be done with them.", ""]


def _quality(manifest: dict[str, Any]) -> list[str]:
    entries = manifest["datasets"].items()
    doubts = sorted({doubt for _, entry in entries for doubt in (*entry["flagged"], *entry["dropped"])})
    lines = ["## Quality", ""]
    if doubts:
        policy = manifest["quality"]
        rows = [
            [
                doubt,
                policy.get(doubt, "always dropped"),
                *(max(entry["flagged"].get(doubt, 0), entry["dropped"].get(doubt, 0)) for _, entry in entries),
            ]
            for doubt in doubts
        ]
        lines += [
            *table(["doubt", "policy", *(name for name, _ in entries)], rows),
            "Responses in doubt, kept or dropped as the policy says; one may be in several lines.",
            "",
            *(f"- `{doubt}`: {MEANINGS[doubt]}." for doubt in doubts),
            "",
        ]
    else:
        lines += ["No response was in doubt.", ""]
    unchecked = {(test, why) for _, entry in entries for test, why in entry["not_checked"].items()}
    return [*lines, *(f"Not checked: {test} ({why})." for test, why in sorted(unchecked)), *([""] if unchecked else [])]


def _lengths(manifest: dict[str, Any], charts: list[str], text_charts: list[str]) -> list[str]:
    lengths, endings = [], []
    for name, entry in manifest["datasets"].items():
        prompt, answer, taken = entry["prompt_length"], entry["answer_length"], entry["train"] + entry["held_out"]
        if taken:
            lengths.append(
                [name, prompt["mean"], prompt["max"], answer["mean"], answer["p05"], answer["median"], answer["p95"], answer["max"]]
            )
            endings.append([name, taken - entry["cut_answers"], entry["cut_answers"], f"{entry['cut_answers'] / taken:.1%}"])
    return [
        "## Lengths",
        "",
        *table(["data set", "prompt mean", "longest", "answer mean", "5 %", "median", "95 %", "longest"], lengths),
        "In tokens: how long prompts are, and how long answers are (5 % of the answers are not longer than the column `5 %` says).",
        "",
        *(f"![{chart.removesuffix('.png').replace('_', ' ')}](charts/{chart})" for chart in charts),
        *(
            ["", "Each histogram is as high as its own tallest column."]
            if charts
            else ["Answer lengths:", "", "```text", *text_charts, "```"]
        ),
        "",
        "## How answers end",
        "",
        *table(["data set", "`stop`", "`length`", "cut"], endings),
        "`length`: cut at the limit on new tokens. Such a row ends without an end token; none was invented.",
        "",
    ]


def _vocabulary(manifest: dict[str, Any]) -> list[str]:
    vocabulary = manifest["exports"]["vocabulary"]
    lines = ["## Vocabulary", "", f"{vocabulary['distinct_tokens']:,} of {vocabulary['target_size']:,} tokens occur with loss."]
    if vocabulary["draft_size"]:
        lines.append(
            f"The draft vocabulary of {vocabulary['draft_size']:,} tokens covers {vocabulary['coverage']:.2%} of them; "
            f"the {len(vocabulary['always_in'])} special and end tokens are in it."
        )
    return [*lines, *(f"Note: {note}." for note in vocabulary["notes"]), ""]


def _samples(samples: list[dict[str, Any]]) -> list[str]:
    if not samples:
        return []
    lines = ["## Sample rows", ""]
    for sample in samples:
        lines += [f"**{sample['dataset']}**, `{sample['id']}`, ended by `{sample['finish_reason']}`", ""]
        for part in ("prompt", "reasoning", "answer"):
            if sample[part]:
                lines += [f"{part.capitalize()}:", "", *_quoted(sample[part]), ""]
        if not sample["answer"]:
            lines += ["No answer came after the reasoning." if sample["reasoning"] else "The answer is empty.", ""]
    return lines


def _quoted(text: str) -> list[str]:
    """Text as an indented block, which no text can break out of; control characters are written as escapes."""
    cut = text if len(text) <= SAMPLE_CHARACTERS else f"{text[:SAMPLE_CHARACTERS]} […]"
    return [f"    {_visible(line)}" for line in cut.split("\n")]


def _visible(line: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\t" else letter.encode("unicode_escape").decode() for letter in line)


def _use(manifest: dict[str, Any]) -> list[str]:
    return [
        "## Use",
        "",
        (
            f"`{manifest['train']}` is read as it is by SpecForge and speculators; `python -m draftmill corpus verify DIR` checks "
            f"this folder from its files alone. The longest row has {manifest['totals']['longest_row']:,} tokens: with a smaller "
            "`max_length` a trainer cuts rows."
        ),
        "",
    ]
