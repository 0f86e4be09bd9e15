"""The tokenizer of a server profile: found, loaded, and checked against the model before anything is sent.

A wrong tokenizer is not noticed by the server, which takes ids: it answers nonsense, and an id outside the vocabulary kills it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from draftmill.errors import PermanentError, TemporaryError
from draftmill.files import read_json, sha256_file
from draftmill.layout import Workspace
from draftmill.prompts.special_text import control_tokens
from draftmill.spec.server import Scalar, ServerProfile

_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
    "*.model",
    "chat_template*",
    "additional_chat_templates/*",
    "config.json",
    "generation_config.json",
    "*.py",
)
"""What of a model's folder decides how text becomes ids."""
_SPARE_IDS = 256
"""Published tokenizers name a few reserved tokens that the model has no rows for (Kimi-K2: two). They are never used."""


@dataclass(frozen=True)
class TokenizerRequest:
    """Which tokenizer to load and what must be true of it. Small and picklable: every process loads its own."""

    folder: str
    trust_remote_code: bool
    tokenizer_class: str | None
    round_trip: tuple[str, ...]
    template_kwargs: tuple[tuple[str, Scalar], ...]
    context_length: int | None


def tokenizer_request(profile: ServerProfile, workspace: Workspace) -> TokenizerRequest:
    """The request for a profile; its hub id, where it is one, is brought to a local folder. PermanentError or TemporaryError."""
    return TokenizerRequest(
        folder=str(_folder(profile.tokenizer_path or profile.model_path, workspace)),
        trust_remote_code=profile.trust_remote_code,
        tokenizer_class=profile.tokenizer_class,
        round_trip=profile.round_trip,
        template_kwargs=tuple(sorted(profile.chat_template_kwargs.items())),
        context_length=profile.context_length,
    )


def _folder(text: str, workspace: Workspace) -> Path:
    path = workspace.resolve(text)
    if path.exists():
        return path
    if text.startswith((".", "/", "~")) or text.count("/") != 1:
        raise PermanentError(
            f"server: model or tokenizer path {path} does not exist; check 'model_path' and 'tokenizer_path' of the profile"
        )
    return _download(text)


def _download(repository: str) -> Path:
    """The tokenizer's files of a hub model, from the local cache where the hub is out of reach."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(repository, allow_patterns=list(_FILES)))
    except (RepositoryNotFoundError, GatedRepoError):
        raise PermanentError(
            f"server: {repository} is neither a path below the workspace nor a hub model that may be read; "
            "check 'model_path' of the profile"
        ) from None
    except (OSError, httpx.HTTPError) as error:
        raise TemporaryError(f"server: the tokenizer of {repository} is not in the cache and the hub cannot be reached ({error})") from None


def files_hash(folder: Path) -> str:
    """A hash of everything in a model's folder that decides how text becomes ids."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"{path.relative_to(folder)}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class LoadedTokenizer:
    """A tokenizer that passed its checks. `vocab_size`: ids that the model has; `context_length`: tokens, where it is known."""

    tokenizer: Any
    template_kwargs: dict[str, Scalar]
    vocab_size: int
    context_length: int | None
    about: dict[str, Any]


def load_tokenizer(request: TokenizerRequest) -> LoadedTokenizer:
    """Load and check. PermanentError says what does not fit: class, template, tokens of `round_trip`, vocabulary."""
    tokenizer = load_raw(request.folder, trust_remote_code=request.trust_remote_code)
    if not tokenizer.chat_template and type(tokenizer).__module__.startswith("transformers."):
        raise PermanentError(
            f"tokenizer at {request.folder} has no chat template; use the instruction-tuned model, or add chat_template.jinja"
        )
    config = _config(Path(request.folder))
    _check_class(tokenizer, request.tokenizer_class, request.folder)
    for token in request.round_trip:
        _check_round_trip(tokenizer, token, request.folder)
    vocab_size = int(config.get("vocab_size") or len(tokenizer))
    _check_vocabulary(tokenizer, vocab_size, request)
    context_length = request.context_length or config.get("max_position_embeddings")
    return LoadedTokenizer(
        tokenizer,
        dict(request.template_kwargs),
        vocab_size,
        context_length,
        _about(tokenizer, request, vocab_size, context_length),
    )


def load_raw(folder: str, *, trust_remote_code: bool) -> Any:
    """The tokenizer in a model's folder, not checked against the model. PermanentError where it cannot be loaded."""
    with _without_torch():
        from transformers import AutoTokenizer
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except ImportError as error:
        raise PermanentError(f"tokenizer at {folder} needs a package that is not installed: {_one_line(error)}") from None
    except (OSError, ValueError, KeyError) as error:
        if "trust_remote_code" in str(error):
            raise PermanentError(
                f"tokenizer at {folder} comes with code of its own; look at it, then set trust_remote_code in the server profile"
            ) from None
        raise PermanentError(f"tokenizer at {folder} cannot be loaded: {_one_line(error)}") from None


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Hide torch while transformers is imported for the first time, which would import it, too.

    That takes seconds, and a quarter of a gigabyte in every process, and tokenizers use nothing of it.
    """
    hide = not {"torch", "transformers"} & set(sys.modules)
    if hide:
        sys.modules["torch"] = None  # type: ignore[assignment]
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        yield
    finally:
        if hide:
            del sys.modules["torch"]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _config(folder: Path) -> dict[str, Any]:
    """config.json; of a model with several parts, the language model's."""
    config = read_json(folder / "config.json")
    config = config if isinstance(config, dict) else {}
    inner = config.get("text_config") or config.get("llm_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _check_class(tokenizer: Any, expected: str | None, folder: str) -> None:
    found = type(tokenizer).__name__
    if expected is not None and expected.removesuffix("Fast") != found.removesuffix("Fast"):
        raise PermanentError(
            f"tokenizer at {folder} loads as {found}, not as {expected}; set trust_remote_code, "
            "or check the model's files and transformers' version"
        )


def _check_round_trip(tokenizer: Any, token: str, folder: str) -> None:
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) != 1 or tokenizer.decode(ids) != token:
        raise PermanentError(
            f"tokenizer at {folder} ({type(tokenizer).__name__}) makes {len(ids)} tokens of {token}, which must be one and decode back; "
            "it is the wrong class for this model: set trust_remote_code and tokenizer_class in the server profile"
        )


def _check_vocabulary(tokenizer: Any, vocab_size: int, request: TokenizerRequest) -> None:
    needed = [tokenizer.convert_tokens_to_ids(token) for token in (*request.round_trip, tokenizer.bos_token, tokenizer.eos_token) if token]
    outside = sum(1 for number in tokenizer.get_vocab().values() if number >= vocab_size)
    if outside > _SPARE_IDS or any(number is None or number >= vocab_size for number in needed):
        raise PermanentError(
            f"tokenizer at {request.folder} has {len(tokenizer)} tokens, the model only {vocab_size} (vocab_size in its config.json); "
            "tokenizer and model do not belong together"
        )


def _about(tokenizer: Any, request: TokenizerRequest, vocab_size: int, context_length: int | None) -> dict[str, Any]:
    """What the prompts' meta file says of the tokenizer."""
    import transformers

    think = {token: tokenizer.convert_tokens_to_ids(token) for token in ("<think>", "</think>") if token in tokenizer.get_vocab()}
    template = tokenizer.chat_template or type(tokenizer).__name__
    kwargs = dict(request.template_kwargs)
    return {
        "vocab_size": vocab_size,
        "context_length": context_length,
        "tokenizer_class": type(tokenizer).__name__,
        "tokenizer_hash": files_hash(Path(request.folder)),
        "template_hash": hashlib.sha256(orjson.dumps([template, kwargs], option=orjson.OPT_SORT_KEYS)).hexdigest(),
        "chat_template_kwargs": kwargs,
        "transformers": transformers.__version__,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_ids": eos_token_ids(tokenizer, Path(request.folder)),
        "special_token_ids": sorted(set(control_tokens(tokenizer).values())),
        "think_ids": think,
        "model_path": request.folder,
        "trust_remote_code": request.trust_remote_code,
    }


def eos_token_ids(tokenizer: Any, folder: Path) -> list[int]:
    """All ids that end an answer: the tokenizer's, the generation config's and the model config's, as the server takes them together."""
    found: set[int] = set()
    for value in (
        tokenizer.eos_token_id,
        (read_json(folder / "generation_config.json") or {}).get("eos_token_id"),
        _config(folder).get("eos_token_id"),
    ):
        found.update(value if isinstance(value, list) else [value] if isinstance(value, int) else [])
    return sorted(found)
