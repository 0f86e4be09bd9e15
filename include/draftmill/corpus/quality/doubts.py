"""Doubts about a response, each with a name, and what the campaign's policy makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.corpus.quality.near_duplicates import NearDuplicates
from draftmill.corpus.quality.phrases import quad_hashes
from draftmill.corpus.quality.repetition import is_degenerate
from draftmill.corpus.record import Row
from draftmill.spec.policy import QualityPolicy

if TYPE_CHECKING:
    from draftmill.corpus.quality.phrases import Quads
    from draftmill.corpus.record import Ids


@dataclass(frozen=True)
class Answer:
    """A row under test, with what several tests need."""

    row: Row

    @cached_property
    def quads(self) -> Quads:
        """Hashes of all runs of four tokens of the answer."""
        return quad_hashes(self.row.output_ids)


Test = Callable[[Answer], bool]


def is_truncated(answer: Answer) -> bool:
    """Cut at max_new_tokens."""
    return answer.row.head.finish_reason == "length"


class Emptiness:
    """Finds answers without a token that says something: control tokens only."""

    def __init__(self, meta: PromptsMeta) -> None:
        self.silent = frozenset(meta.special_token_ids) | frozenset(meta.eos_token_ids)

    def __call__(self, answer: Answer) -> bool:
        """Whether the answer is empty. Nearly every answer speaks within its first tokens; only the others are looked at whole."""
        ids = answer.row.output_ids
        return self.silent.issuperset(ids[:8].tolist()) and self.silent.issuperset(ids.tolist())


class OpenReasoning:
    """Finds answers that end inside their reasoning: the last of the two tags opens it.

    The tags of the prompt count, because many chat templates open the reasoning in the generation prompt.
    """

    def __init__(self, meta: PromptsMeta) -> None:
        self.opening = meta.think_ids.get("<think>", -1)
        self.closing = meta.think_ids.get("</think>", -1)

    def __call__(self, answer: Answer) -> bool:
        """Whether reasoning is still open at the end; False for a model without the tags."""
        return last_position(answer.row.ids, self.opening) > last_position(answer.row.ids, self.closing)


def last_position(ids: Ids, token: int) -> int:
    """Index of the last occurrence of `token`, -1 where there is none."""
    places = (ids == token).nonzero()[0]
    return int(places[-1]) if len(places) else -1


def standard_tests(meta: PromptsMeta) -> dict[str, Test]:
    """The tests that need nothing but token ids, by the policy field that decides about their findings."""
    near_duplicates = NearDuplicates()
    return {
        "empty": Emptiness(meta),
        "truncated": is_truncated,
        "unclosed_reasoning": OpenReasoning(meta),
        "repetition": lambda answer: is_degenerate(answer.quads),
        "near_duplicates": lambda answer: near_duplicates(answer.quads),
    }


@dataclass
class Quality:
    """Applies the tests in order and keeps the account: every doubt, whether the row was dropped for it or not."""

    policy: QualityPolicy
    tests: dict[str, Test]
    flagged: Counter[str] = field(default_factory=Counter)

    def reason_to_drop(self, row: Row) -> str | None:
        """The first doubt for which the policy says drop, or None."""
        answer = Answer(row)
        found = [name for name, test in self.tests.items() if test(answer)]
        self.flagged.update(found)
        return next((name for name in found if getattr(self.policy, name) == "drop"), None)
