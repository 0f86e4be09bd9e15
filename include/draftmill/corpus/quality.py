"""Doubts about a response, each with a name, and what the campaign's policy makes of them.

All measures are taken on token ids; only the search for replacement characters looks at text, see draftmill.corpus.characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from draftmill.corpus.join import Joined
from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.corpus.repetition import is_degenerate
from draftmill.spec.policy import QualityPolicy

if TYPE_CHECKING:
    from draftmill.corpus.record import Ids

EMPTY = "empty"
TRUNCATED = "truncated"
UNCLOSED_REASONING = "unclosed_reasoning"
REPETITION = "repetition"
REPLACEMENT_CHARACTERS = "replacement_characters"
NEAR_DUPLICATES = "near_duplicates"

Test = Callable[[Joined], bool]


def is_truncated(row: Joined) -> bool:
    """Cut at max_new_tokens."""
    return row.head.finish_reason == "length"


class Emptiness:
    """Answers without a token that says something: nothing at all, or control tokens only."""

    def __init__(self, meta: PromptsMeta) -> None:
        self.silent = sorted({*meta.special_token_ids, *meta.eos_token_ids})

    def __call__(self, row: Joined) -> bool:
        """Whether the answer is empty. Nearly every answer speaks within its first tokens, so the rest is looked at only when they do not."""
        import numpy as np

        return bool(np.isin(row.output_ids[:8], self.silent).all() and np.isin(row.output_ids, self.silent).all())


class OpenReasoning:
    """Answers that end inside their reasoning: the last of the two tags, prompt included, opens it.

    The prompt counts because many chat templates open the reasoning in the generation prompt.
    """

    def __init__(self, meta: PromptsMeta) -> None:
        self.opening = meta.think_ids.get("<think>", -1)
        self.closing = meta.think_ids.get("</think>", -1)

    def __call__(self, row: Joined) -> bool:
        """Whether reasoning is still open at the end; False for a model without the tags."""
        last_open = last_position(row.ids, self.opening)
        return last_open > last_position(row.ids, self.closing)


def last_position(ids: Ids, token: int) -> int:
    """Index of the last occurrence of `token`, -1 where there is none."""
    import numpy as np

    places = np.flatnonzero(ids == token)
    return int(places[-1]) if len(places) else -1


@dataclass
class Quality:
    """Applies the tests in order and keeps the account: what was flagged, and what was dropped for which first reason."""

    policy: QualityPolicy
    tests: dict[str, Test]
    flagged: Counter[str] = field(default_factory=Counter)

    def doubt(self, row: Joined) -> str | None:
        """The first reason to drop this row, or None. Every doubt is counted in `flagged`, dropped for or not."""
        reason = None
        for name, test in self.tests.items():
            if test(row):
                self.flagged[name] += 1
                if reason is None and getattr(self.policy, name) == "drop":
                    reason = name
        return reason


def standard_tests(meta: PromptsMeta) -> dict[str, Test]:
    """The tests that need nothing but token ids."""
    return {
        EMPTY: Emptiness(meta),
        TRUNCATED: is_truncated,
        UNCLOSED_REASONING: OpenReasoning(meta),
        REPETITION: lambda row: is_degenerate(row.output_ids),
    }
