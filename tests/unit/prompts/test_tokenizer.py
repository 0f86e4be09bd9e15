"""The guard: a tokenizer that does not fit the model is refused before anything is sent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftmill.errors import PermanentError
from draftmill.layout import Workspace
from draftmill.prompts.tokenizer import LoadedTokenizer, files_hash, load_tokenizer, tokenizer_request
from tests.plans import make_plan
from tests.tokenizers import save_model_folder


def load(folder: Path, **profile: Any) -> LoadedTokenizer:
    plan = make_plan(profile={"model_path": str(folder)} | profile)
    return load_tokenizer(tokenizer_request(plan.server.profile, Workspace(folder.parent)))


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    return Path(shutil.copytree(model_folder, tmp_path / "models/tiny"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_said_of_a_tokenizer(folder: Path) -> None:
    about = load(folder, round_trip=["<think>", "</think>"], chat_template_kwargs={"thinking": True}).about
    tokenizer = load(folder).tokenizer
    assert about["think_ids"] == {token: tokenizer.convert_tokens_to_ids(token) for token in ("<think>", "</think>")}
    assert about["bos_token_id"] == tokenizer.bos_token_id
    assert about["eos_token_ids"] == sorted(tokenizer.convert_tokens_to_ids(["[EOS]", "<|im_end|>"]))
    assert set(about["special_token_ids"]) >= set(tokenizer.all_special_ids)
    assert about["context_length"] == 4096
    assert about["template_hash"] != load(folder, chat_template_kwargs={"thinking": False}).about["template_hash"]


def test_a_path_below_the_workspace(folder: Path) -> None:
    plan = make_plan(profile={"model_path": "models/tiny"})
    request = tokenizer_request(plan.server.profile, Workspace(folder.parent.parent))
    assert request.folder == str(folder)


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    for path in ("/no/such/model", "~/no/such", "models", "a/b/c"):
        with pytest.raises(PermanentError, match="does not exist"):
            tokenizer_request(make_plan(profile={"model_path": path}).server.profile, Workspace(tmp_path))


def test_the_class_must_be_the_one_that_was_named(folder: Path) -> None:
    name = type(load(folder).tokenizer).__name__
    assert load(folder, tokenizer_class=name.removesuffix("Fast")).vocab_size
    with pytest.raises(PermanentError, match="not as TikTokenTokenizer"):
        load(folder, tokenizer_class="TikTokenTokenizer")


def test_a_token_that_falls_apart(folder: Path) -> None:
    with pytest.raises(PermanentError, match="tokens of <reason>, which must be one"):
        load(folder, round_trip=["<reason>"])


def test_a_model_with_fewer_ids_than_the_tokenizer(folder: Path) -> None:
    change_config(folder, vocab_size=100)
    with pytest.raises(PermanentError, match="do not belong together"):
        load(folder)


def test_reserved_tokens_that_the_model_has_no_rows_for(folder: Path) -> None:
    tokenizer = load(folder).tokenizer
    tokenizer.add_tokens(["<|reserved_1|>", "<|reserved_2|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    assert load(folder).vocab_size == len(tokenizer) - 2


def test_a_model_of_several_parts_keeps_its_sizes_in_its_language_model(folder: Path) -> None:
    change_config(folder, vocab_size=7, text_config={"vocab_size": 5000, "max_position_embeddings": 262_144})
    loaded = load(folder)
    assert (loaded.vocab_size, loaded.context_length) == (5000, 262_144)
    assert load(folder, context_length=1000).context_length == 1000, "the profile has the last word"


def test_no_chat_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(PermanentError, match="no chat template"):
        load(folder)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PermanentError, match="cannot be loaded"):
        load(tmp_path)


def test_the_hash_covers_what_decides_ids_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    before = files_hash(folder)
    (folder / "model.safetensors").write_bytes(b"weights")
    assert files_hash(folder) == before
    (folder / "chat_template.jinja").write_text("other")
    assert files_hash(folder) != before
    assert files_hash(save_model_folder(tmp_path / "again", context_length=4096)) == before


def test_loading_imports_no_torch_and_leaves_it_importable(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/torch.py").write_text("raise SystemExit('imported')")
    script = f"""
import sys
from draftmill.prompts.tokenizer import load_raw
load_raw({str(folder)!r}, trust_remote_code=False)
assert "torch" not in sys.modules
import importlib.util
assert importlib.util.find_spec("torch") is not None
"""
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, check=True)


REMOTE = '''
"""Tokenizer code as a model brings it along."""
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    """A class of its own."""
'''


def test_a_models_own_tokenizer_code_needs_trust(folder: Path) -> None:
    (folder / "tokenization_own.py").write_text(REMOTE)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {
        "auto_map": {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]},
        "tokenizer_class": "OwnTokenizer",
    }
    path.write_text(json.dumps(config))
    assert type(load(folder, trust_remote_code=True, tokenizer_class="OwnTokenizer").tokenizer).__name__ == "OwnTokenizer"
    with pytest.raises(PermanentError, match="trust_remote_code"):
        load(folder, tokenizer_class="OwnTokenizer")
