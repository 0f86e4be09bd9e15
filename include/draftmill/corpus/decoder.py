"""Token ids as text, for people and for one quality test. What is decoded here is never encoded again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from draftmill.errors import PermanentError
from draftmill.jobs.step import StepContext
from draftmill.prompts.tokenizer import files_hash, load_tokenizer, tokenizer_request

Decode = Callable[[Sequence[int]], str]


def load_decoder(ctx: StepContext, tokenizer_hash: str) -> Decode:
    """Decode with the tokenizer of the plan's server profile, special tokens written out.

    DraftmillError where it cannot be loaded, or where it is not the one (`tokenizer_hash`) that the prompts were rendered with.
    """
    request = tokenizer_request(ctx.plan.server.profile, ctx.workspace)
    found = files_hash(Path(request.folder))
    if found != tokenizer_hash:
        raise PermanentError(f"tokenizer at {request.folder} has changed since the prompts were rendered; prepare the data sets again")
    tokenizer: Any = load_tokenizer(request).tokenizer

    def decode(ids: Sequence[int]) -> str:
        # Without options: special tokens are written out by default, and Kimi's tokenizer takes its slow way when it is given any.
        text: str = tokenizer.decode(ids)
        return text

    return decode
