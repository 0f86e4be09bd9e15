"""What a prompts file was made from, as a digest: the same digest means that making it again would give the same file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from draftmill.files import read_json
from draftmill.layout import CampaignFolder
from draftmill.prompts.tokenizer import TokenizerRequest, files_hash
from draftmill.sources.locate import Located
from draftmill.spec.plan import Plan, PromptOrigin
from draftmill.spec.results import PrepareResult

SCHEMA = 1
"""Raised when the same request would give another file: ids, order or rendering have changed."""


def digest_of(value: Any) -> str:
    """Hex SHA-256 of a JSON value."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def source_digest(seed: int, origin: PromptOrigin, located: list[Located]) -> str:
    """A digest of everything that decides which prompts a data set can have, and in which order."""
    sources = [[source.source.adapter, source.identity] for source in located]
    return digest_of([SCHEMA, seed, origin.adapter, origin.columns, origin.turns, sources])


def request_digest(plan: Plan, name: str, sources: str, earlier: list[str | None], tokenizer: TokenizerRequest) -> str:
    """A digest of everything that decides what is in the prompts file. `earlier`: source digests of the data sets before."""
    dataset = plan.dataset(name)
    return digest_of(
        [
            sources,
            earlier,
            dataset.max_prompts,
            dataset.max_prompt_tokens,
            dataset.max_new_tokens,
            plan.special_token_text,
            files_hash(Path(tokenizer.folder)),
            tokenizer.tokenizer_class,
            tokenizer.round_trip,
            tokenizer.template_kwargs,
            tokenizer.context_length,
        ]
    )


def reusable(folder: CampaignFolder, dataset: str, request: str) -> PrepareResult | None:
    """The result of the prompts file that is there, where it was made from the same request and is still whole."""
    meta = read_json(folder.prompts_meta(dataset))
    path = folder.prompts(dataset)
    if not isinstance(meta, dict) or meta.get("request") != request or not path.is_file() or path.stat().st_size != meta.get("bytes"):
        return None
    fields = {field: meta[field] for field in ("dataset", "prompts", "rows_read", "rows_used", "skipped")}
    return PrepareResult(**fields, reused=True, path=str(path))
