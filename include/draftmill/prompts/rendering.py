"""Rendering in worker processes: batches of candidates in, prompt lines or reasons out."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from draftmill.prompts.prompt import Prompt
from draftmill.prompts.render import Rendered, Renderer
from draftmill.prompts.tokenizer import TokenizerRequest, load_tokenizer

BATCH = 128


@dataclass(frozen=True)
class RenderRequest:
    """How candidates become prompts. Limits are in prompt tokens; None is no limit.

    max_prompt_tokens: the data set's own limit. room: what the model's context leaves for a prompt beside a longest answer.
    """

    tokenizer: TokenizerRequest
    policy: Literal["plain", "skip"]
    dataset: str
    max_prompt_tokens: int | None
    room: int | None


Candidate = tuple[str, bytes]
"""A prompt's id, and the JSON of `[messages, tools, later]`."""
Line = tuple[bytes | None, str | None, bool]
"""A prompt line or None, the reason where None, and whether user text spelled a control token."""


@functools.lru_cache(maxsize=1)
def renderer(tokenizer: TokenizerRequest, policy: Literal["plain", "skip"]) -> Renderer:
    """The process's renderer: loading a tokenizer takes seconds. Raises PermanentError where it does not fit the model."""
    return Renderer(load_tokenizer(tokenizer), policy)


def describe_tokenizer(tokenizer: TokenizerRequest, policy: Literal["plain", "skip"]) -> dict[str, Any]:
    """Load and check this process's tokenizer and template, and describe them."""
    return renderer(tokenizer, policy).about


def render_batch(request: RenderRequest, batch: list[Candidate]) -> list[Line]:
    """Render candidates, in order."""
    parts = [orjson.loads(payload) for _, payload in batch]
    made = renderer(request.tokenizer, request.policy).render([(messages, tools) for messages, tools, _ in parts])
    return [_line(request, row_id, part, result) for (row_id, _), part, result in zip(batch, parts, made, strict=True)]


def _line(request: RenderRequest, row_id: str, part: list[Any], result: Rendered) -> Line:
    if result.ids is None:
        return None, result.reason, result.special_text
    for limit, reason in ((request.max_prompt_tokens, "over_max_prompt_tokens"), (request.room, "over_context")):
        if limit is not None and len(result.ids) > limit:
            return None, reason, result.special_text
    messages, tools, later = part
    prompt = Prompt(row_id, result.ids, request.dataset, row_id, 0, tools, messages, later)
    return prompt.to_line(), None, result.special_text
