"""A workspace with a tiny model's folder, and contexts for steps in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill.jobs.step import StepContext
from draftmill.layout import Workspace
from draftmill.prompts.tokenizer import LoadedTokenizer, load_tokenizer, tokenizer_request
from tests.plans import make_dataset, make_plan
from tests.tokenizers import save_model_folder

MakeContext = Callable[..., StepContext]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model_folder(tmp_path_factory.mktemp("model") / "tiny", context_length=4096)


@pytest.fixture
def loaded(model_folder: Path) -> LoadedTokenizer:
    ctx = make_plan(profile={"model_path": str(model_folder), "round_trip": ["<think>", "</think>"]})
    return load_tokenizer(tokenizer_request(ctx.server.profile, Workspace(Path("/"))))


@pytest.fixture
def make_context(tmp_path: Path, model_folder: Path) -> MakeContext:
    """A context for a data set of `source` (a path below the workspace), with changes to its entry and to the plan."""

    def make(source: str | list[str], *, name: str = "alpha", plan: dict[str, Any] | None = None, **changes: Any) -> StepContext:
        paths = [source] if isinstance(source, str) else source
        dataset = make_dataset(name, sources=[{"path": path} for path in paths], **changes)
        made = make_plan(dataset, profile={"model_path": str(model_folder)}, **(plan or {}))
        return StepContext(made, Workspace(tmp_path), lambda *_, **__: None, name)

    return make
