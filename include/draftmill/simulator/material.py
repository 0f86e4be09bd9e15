"""Made-up prompts for a plan: as many as its budgets take, with the answer lengths that its data sets are expected to have."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from draftmill.files import atomic_writer, sha256_file, write_json
from draftmill.layout import CampaignFolder
from draftmill.prompts.prompt import Prompt, content_id, order_key
from draftmill.simulator.workload import LengthLaw, Workload
from draftmill.spec.dataset import LengthClass
from draftmill.spec.plan import DatasetPlan, Plan

PROMPT_TOKENS: dict[LengthClass, float] = {"short": 400.0, "long": 800.0}
"""Mean prompt length by class. An assumption: the data sets' prompts have not been measured."""

PROMPT_SIGMA = 0.7
FIRST_MARKER = 10
SPARE = 1.25
"""Prompts made for each that the budget is expected to take."""

_FILLER = 1
_VARYING = 8
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Material:
    """What is simulated: a plan, the answers to its prompts, and how long its prompts are (mean tokens by class)."""

    plan: Plan
    workload: Workload
    prompt_tokens: dict[LengthClass, float]

    @classmethod
    def of(cls, plan: Plan, seed: int = 0, prompt_tokens: float | None = None) -> Material:
        """Answers by the plan's expected lengths; `prompt_tokens` replaces the mean prompt length of all classes."""
        means = PROMPT_TOKENS if prompt_tokens is None else dict.fromkeys(PROMPT_TOKENS, prompt_tokens)
        laws = {FIRST_MARKER + number: _law(entry) for number, entry in enumerate(plan.datasets)}
        return cls(plan, Workload(seed=seed, by_marker=laws), dict(means))

    def prompts(self, dataset: DatasetPlan) -> list[Prompt]:
        """The data set's prompts in work order. Each begins with the id that marks its data set."""
        count = math.ceil(SPARE * dataset.budget_tokens / dataset.expected_tokens) + 100
        count = min(count, dataset.max_prompts or count, dataset.max_samples or count)
        made = [self._prompt(dataset, number) for number in range(count)]
        return sorted(made, key=lambda prompt: order_key(self.plan.seed, prompt.id))

    def _prompt(self, dataset: DatasetPlan, number: int) -> Prompt:
        marker = FIRST_MARKER + self.plan.names.index(dataset.name)
        prompt_id = content_id(f"{dataset.name}/{number}".encode())
        digest = hashlib.blake2b(prompt_id.encode(), digest_size=8 + _VARYING, key=b"prompt/%d" % self.workload.seed).digest()
        share = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
        mean = self.prompt_tokens[dataset.length_class]
        length = round(mean * math.exp(PROMPT_SIGMA * _NORMAL.inv_cdf(share) - PROMPT_SIGMA**2 / 2))
        varying = [FIRST_MARKER + byte for byte in digest[8:]]
        ids = [marker, *varying, *[_FILLER] * max(0, length - 1 - _VARYING)]
        return Prompt(id=prompt_id, input_ids=ids, dataset=dataset.name, conversation=prompt_id)

    def write(self, folder: CampaignFolder, dataset: DatasetPlan, vocab_size: int) -> int:
        """Write the prompts file and its description; returns how many prompts there are."""
        path = folder.prompts(dataset.name)
        prompts = self.prompts(dataset)
        with atomic_writer(path) as stream:
            stream.writelines(prompt.to_line() for prompt in prompts)
        meta = {"schema": 1, "dataset": dataset.name, "prompts": len(prompts), "vocab_size": vocab_size}
        write_json(folder.prompts_meta(dataset.name), meta | {"eos_token_ids": [self.workload.eos_id], "sha256": sha256_file(path)})
        return len(prompts)

    def lengths(self, dataset: DatasetPlan) -> list[tuple[int, int]]:
        """(prompt tokens, answer tokens) of the data set's prompts, in work order."""
        return [
            (len(prompt.input_ids), self.workload.answer(prompt.input_ids, dataset.max_new_tokens).tokens)
            for prompt in self.prompts(dataset)
        ]


def _law(dataset: DatasetPlan) -> LengthLaw:
    """The data set's length law; a mean that its cut-off forbids is lowered to what it allows."""
    cap = dataset.max_new_tokens
    return LengthLaw(max(1.0, min(float(dataset.expected_tokens), 0.8 * cap)), max(cap, 2))


def workspace_bytes(plan: Plan) -> int:
    """Disk space that a simulated run of the plan takes, roughly: five bytes a token id, and the prompts."""
    return sum(5 * entry.budget_tokens for entry in plan.datasets)


def campaign_folder(root: Path, plan: Plan) -> CampaignFolder:
    """The folder that a simulated run of the plan writes to."""
    return CampaignFolder(root / "campaigns" / plan.campaign)
