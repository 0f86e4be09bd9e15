"""A small campaign on disk for the tests: prompts and a journal, made with the writers that the real ones use."""

from __future__ import annotations

import atexit
import functools
import random
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from draftmill.files import sha256_file, write_json
from draftmill.generation.response import Response
from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.prompts.prompt import Prompt, content_id, input_hash, order_key
from draftmill.prompts.tokenizer import load_tokenizer, tokenizer_request
from draftmill.spec.plan import Plan
from tests.plans import make_dataset, make_plan
from tests.tokenizers import END as END_TEXT
from tests.tokenizers import make_tokenizer, save_model_folder

TOKENIZER = make_tokenizer()
VOCABULARY = len(TOKENIZER)
END, USER, ASSISTANT, OPEN, CLOSE = (
    TOKENIZER.convert_tokens_to_ids(text) for text in (END_TEXT, "<|im_user|>", "<|im_assistant|>", "<think>", "</think>")
)
PLAIN = [token for token in range(TOKENIZER.vocab_size) if "\ufffd" not in TOKENIZER.decode([token])]
"""Tokens that are whole text by themselves."""


@functools.lru_cache(maxsize=1)
def tokenizer_folder() -> Path:
    """The tokenizer's files, as those of a model."""
    folder = Path(tempfile.mkdtemp(prefix="corpus-tokenizer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return save_model_folder(folder / "tiny")


def about_tokenizer() -> dict[str, Any]:
    """What the prompts' meta file says of it."""
    return dict(_about(str(tokenizer_folder())))


@functools.lru_cache(maxsize=1)
def _about(folder: str) -> dict[str, Any]:
    profile = make_plan(profile={"model_path": folder}).server.profile
    return load_tokenizer(tokenizer_request(profile, Workspace(Path(folder)))).about


def make_prompts(dataset: str, count: int, seed: int = 7) -> list[Prompt]:
    """`count` prompts in work order."""
    chance = random.Random(f"{dataset} prompts")
    prompts = []
    for number in range(count):
        identity = content_id(f"{dataset} {number}".encode())
        ids = [USER, *chance.choices(PLAIN, k=chance.randrange(5, 60)), END, ASSISTANT, OPEN]
        prompts.append(Prompt(identity, ids, dataset, conversation=identity))
    return sorted(prompts, key=lambda prompt: order_key(seed, prompt.id))


def answer(prompt: Prompt, output_ids: list[int] | None = None, **changes: Any) -> Response:
    """A response to `prompt`; without `output_ids` an answer that closes its reasoning and ends."""
    chance = random.Random(prompt.id)
    if output_ids is None:
        body = chance.choices(PLAIN, k=chance.randrange(10, 120))
        output_ids = [*body, CLOSE, *body[:5], END]
    values: dict[str, Any] = {
        "id": prompt.id,
        "input_hash": input_hash(prompt.input_ids),
        "output_ids": output_ids,
        "prompt_tokens": len(prompt.input_ids),
        "completion_tokens": len(output_ids),
        "finish_reason": "stop",
        "rid": f"rid-{prompt.id[:8]}",
        "server": "server-1",
        "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 512},
        "started_at": 1.0,
        "finished_at": 2.0,
        "conversation": prompt.conversation,
        "turn": prompt.turn,
    }
    return Response(**(values | changes))


@dataclass
class Campaign:
    """Writes prompts and journals, and runs steps on them."""

    root: Path
    plan: Plan
    said: list[str] = field(default_factory=list)

    def ctx(self, dataset: str | None = None) -> StepContext:
        return StepContext(self.plan, Workspace(self.root), lambda message, **_: self.said.append(message), dataset)

    @property
    def folder(self):
        return self.ctx().folder

    def change(self, **changes: Any) -> None:
        self.plan = Plan.model_validate(self.plan.model_dump() | changes, strict=False)

    def write_prompts(self, dataset: str, prompts: list[Prompt], **changes: Any) -> None:
        path = self.folder.prompts(dataset)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(prompt.to_line() for prompt in prompts))
        meta = {
            "schema": 1,
            "request": "r",
            "dataset": dataset,
            "prompts": len(prompts),
            "rows_read": len(prompts),
            "rows_used": len(prompts),
            "skipped": {},
            **about_tokenizer(),
            "sources": [{"path": f"samples/{dataset}.jsonl", "revision": "main", "commit": None}],
            "sha256": sha256_file(path),
        }
        write_json(self.folder.prompts_meta(dataset), meta | changes)

    def write_journal(self, dataset: str, responses: Iterable[Response]) -> None:
        path = self.folder.journal(dataset)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(response.to_line() for response in responses))

    def fill(self, dataset: str, prompts: int, responses: int) -> list[Response]:
        """Prompts, and responses to the first of them in an order of completion that is not the order of work."""
        made = make_prompts(dataset, prompts, self.plan.seed)
        answers = [answer(prompt) for prompt in made[:responses]]
        random.Random(3).shuffle(answers)
        self.write_prompts(dataset, made)
        self.write_journal(dataset, answers)
        return answers


def with_ids(response: Response, input_ids: list[int], turn: int) -> Response:
    """The response to a later turn, which carries what was sent."""
    return replace(response, input_ids=input_ids, input_hash=input_hash(input_ids), prompt_tokens=len(input_ids), turn=turn)


def make_campaign(root: Path, *names: str, **changes: Any) -> Campaign:
    """A campaign of the named data sets on the test tokenizer, without files. A handful of responses reaches its budgets."""
    datasets = [make_dataset(name, budget_tokens=200) for name in names]
    return Campaign(root, make_plan(*datasets, profile={"model_path": str(tokenizer_folder())}, **changes))


def two_datasets(root: Path, **changes: Any) -> Campaign:
    """Data sets alpha and beta with 40 and 30 responses."""
    campaign = make_campaign(root, "alpha", "beta", **changes)
    campaign.fill("alpha", 60, 40)
    campaign.fill("beta", 30, 30)
    return campaign
