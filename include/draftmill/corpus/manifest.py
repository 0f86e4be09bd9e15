"""manifest.json: what is in a corpus and how it came to be.

Beside it lies `manifest.json.sha256`, in the form that `sha256sum -c` reads: so the manifest vouches for every file and the small file
for the manifest. Schema 1.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import draftmill
from draftmill.corpus.request import MergeRequest
from draftmill.corpus.selection import HELD_OUT, TRAIN, counts_by_source
from draftmill.files import read_json, sha256_file
from draftmill.jobs.bundle import code_hash
from draftmill.jobs.step import StepContext

if TYPE_CHECKING:
    import pandas as pd

    from draftmill.corpus.exports.plan import Exports

MANIFEST_SCHEMA = 1


def manifest_path(folder: Path) -> Path:
    """The manifest of the corpus in `folder`."""
    return folder / "manifest.json"


def _witness_path(folder: Path) -> Path:
    return folder / "manifest.json.sha256"


def witness(sha256: str) -> bytes:
    """The content of the small file that vouches for the manifest."""
    return f"{sha256}  manifest.json\n".encode()


def build_manifest(ctx: StepContext, request: MergeRequest, table: pd.DataFrame, exports: Exports, parent: Path | None) -> dict[str, Any]:
    """Everything but the files, which `write_manifest` adds."""
    plan = ctx.plan
    return {
        "schema": MANIFEST_SCHEMA,
        "campaign": plan.campaign,
        "description": plan.description,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request": request.digest,
        "parent": sha256_file(manifest_path(parent)) if parent else None,
        "draftmill": {"version": draftmill.__version__, "code_hash": code_hash()},
        "model": {**request.model, **{name: request.prompts[name] for name in _MODEL_FIELDS}},
        "server": {
            "profile": plan.server.name,
            "settings": plan.server.profile.model_dump(mode="json", exclude={"env"}),
            "answered_by": dict(_sum_counters(source.meta.servers for source in request.sources)),
        },
        "sampling": {"plan": plan.sampling.model_dump(mode="json"), "seed": plan.seed},
        "quality": plan.quality.model_dump(mode="json"),
        "corpus": plan.corpus.model_dump(mode="json"),
        "datasets": _datasets(ctx, request, table),
        "left_out": request.left_out,
        "out_of_date": request.out_of_date,
        "totals": _totals(table),
        "train": exports.train,
        "exports": exports.describe(),
    }


_MODEL_FIELDS = ("model_path", "transformers", "eos_token_ids", "special_token_ids", "think_ids")


def _sum_counters(parts: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _datasets(ctx: StepContext, request: MergeRequest, table: pd.DataFrame) -> dict[str, Any]:
    counts = counts_by_source(table, request.sources)
    described = {}
    for source in request.sources:
        spec, meta, merged = ctx.plan.dataset(source.name), source.meta, counts[source.name]
        described[source.name] = {
            "licence": spec.licence,
            "licence_contested": spec.licence_contested,
            "sources": meta.prompts["sources"],
            "rows": merged["train"] + merged["held_out"],
            **merged,
            "responses": meta.rows_in,
            "dropped": meta.dropped,
            "flagged": meta.flagged,
            "not_checked": meta.not_checked,
            "finish_reasons": meta.finish_reasons,
            "samplings": meta.samplings,
            "prompts_sha256": meta.prompts["sha256"],
            "journal": meta.journal.model_dump(exclude={"mtime_ns"}),
            "records_sha256": {"heads": meta.heads.sha256, "ids": meta.ids.sha256},
        }
    return described


def _totals(table: pd.DataFrame) -> dict[str, int]:
    taken = table[table["fate"] <= HELD_OUT]
    train = table[table["fate"] == TRAIN]
    return {
        "rows": len(train),
        "held_out_rows": len(taken) - len(train),
        "loss_tokens": int(train["completion_tokens"].sum()),
        "total_tokens": int(train["completion_tokens"].sum() + train["prompt_tokens"].sum()),
        "held_out_loss_tokens": int(taken["completion_tokens"].sum() - train["completion_tokens"].sum()),
    }


def files_below(folder: Path) -> list[Path]:
    """All files of a corpus but the manifest and its witness, sorted."""
    own = {manifest_path(folder), _witness_path(folder)}
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)


def write_manifest(folder: Path, manifest: dict[str, Any], hashes: dict[Path, str]) -> dict[str, Any]:
    """Write the manifest and its witness; files not in `hashes` are hashed here. Returns the manifest with its own hash as `sha256`."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": hashes.get(path) or sha256_file(path)}
        for path in files_below(folder)
    }
    text = orjson.dumps({**manifest, "files": files}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    manifest_path(folder).write_bytes(text)
    sha256 = hashlib.sha256(text).hexdigest()
    _witness_path(folder).write_bytes(witness(sha256))
    return {**manifest, "files": files, "sha256": sha256}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest with its own hash as `sha256`; None where there is none, or none that its witness vouches for."""
    path = manifest_path(folder)
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema") != MANIFEST_SCHEMA:
        return None
    sha256 = sha256_file(path)
    try:
        vouched = _witness_path(folder).read_bytes() == witness(sha256)
    except OSError:
        return None
    return {**value, "sha256": sha256} if vouched else None


def intact(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether every file of the manifest is there, byte for byte."""
    return not damaged_files(folder, manifest)


def damaged_files(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Files of the manifest that are absent or changed, each with what is wrong."""
    faults = []
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name}: missing")
        elif path.stat().st_size != expected["bytes"]:
            faults.append(f"{name}: {path.stat().st_size} bytes, {expected['bytes']} expected")
        elif sha256_file(path) != expected["sha256"]:
            faults.append(f"{name}: its content has changed")
    return faults
