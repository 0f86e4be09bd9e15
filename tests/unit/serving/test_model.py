from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill.layout import Workspace
from draftmill.serving.model import find_model


def write(folder: Path, config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_path_below_the_workspace_comes_before_a_hub_id(tmp_path: Path) -> None:
    folder = write(tmp_path / "models" / "tiny", {"vocab_size": 1024, "max_position_embeddings": 2048})
    model = find_model(Workspace(tmp_path), "models/tiny")
    assert model.name == str(folder)
    assert (model.vocab_size, model.context_length) == (1024, 2048)
    assert model.digest is not None
    assert len(model.digest) == 64


def test_the_language_part_of_a_model_of_several(tmp_path: Path) -> None:
    write(tmp_path / "m", {"vocab_size": 1, "text_config": {"vocab_size": 163840, "max_position_embeddings": 262144}})
    model = find_model(Workspace(tmp_path), "m")
    assert (model.vocab_size, model.context_length) == (163840, 262144)


def test_a_hub_id_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    model = find_model(Workspace(tmp_path), "owner/model")
    assert (model.name, model.folder, model.digest) == ("owner/model", None, None)


def test_a_hub_model_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "cache" / "models--owner--model"
    snapshot = write(repository / "snapshots" / ("a" * 40), {"vocab_size": 7})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    model = find_model(Workspace(tmp_path), "owner/model")
    assert (model.name, model.folder, model.vocab_size) == ("owner/model", snapshot, 7)


@pytest.mark.parametrize("name", ["/absent/model", "~/absent", "absent", "a/b/c"])
def test_a_path_that_is_not_there_stays_a_path(tmp_path: Path, name: str) -> None:
    model = find_model(Workspace(tmp_path), name)
    assert model.folder is None
    assert Path(model.name).is_absolute()


def test_a_broken_config_gives_no_digest(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{")
    assert find_model(Workspace(tmp_path), "m").digest is None
