"""How long a prompt may be beside a longest answer."""

from __future__ import annotations

from draftmill.errors import PermanentError
from draftmill.spec.plan import DatasetPlan

CONTEXT_MARGIN = 8
"""Tokens that servers keep back from the context (SGLang: a few)."""


def prompt_room(dataset: DatasetPlan, context_length: int | None) -> int | None:
    """Longest prompt in tokens, None where the context is not known. PermanentError where an answer alone fills the context."""
    if context_length is None:
        return None
    room = context_length - dataset.max_new_tokens - CONTEXT_MARGIN
    if room <= 0:
        raise PermanentError(
            f"{dataset.name}: max_new_tokens {dataset.max_new_tokens} leaves no room for a prompt in the model's context of "
            f"{context_length} tokens; lower max_new_tokens of class {dataset.length_class} in the campaign"
        )
    return room
