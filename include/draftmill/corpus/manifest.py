"""manifest.json: what is in a corpus and how it came to be.

Beside it lies `manifest.json.sha256`, in the form that `sha256sum -c` reads: so the manifest vouches for every file and the small file
for the manifest. Schema 1.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import draftmill
from draftmill.corpus import statistics
from draftmill.corpus.provenance import without_secrets
from draftmill.corpus.request import MergeRequest
from draftmill.files import read_json, sha256_file
from draftmill.jobs.bundle import code_hash
from draftmill.jobs.step import StepContext
from draftmill.spec.plan import Plan

if TYPE_CHECKING:
    from draftmill.corpus.exports.plan import Exports
    from draftmill.corpus.selection import Table

MANIFEST_SCHEMA = 1


def manifest_path(folder: Path) -> Path:
    """The manifest of the corpus in `folder`."""
    return folder / "manifest.json"


def _witness_path(folder: Path) -> Path:
    return folder / "manifest.json.sha256"


def witness(sha256: str) -> bytes:
    """The content of the small file that vouches for the manifest."""
    return f"{sha256}  manifest.json\n".encode()


def build_manifest(ctx: StepContext, request: MergeRequest, table: Table, exports: Exports, parent: str | None) -> dict[str, Any]:
    """Everything but the files, which `write_manifest` adds."""
    plan = ctx.plan
    return {
        "schema": MANIFEST_SCHEMA,
        "campaign": plan.campaign,
        "description": plan.description,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request": request.digest,
        "parent": parent,
        "draftmill": {"version": draftmill.__version__, "code_hash": code_hash()},
        "model": {
            "name": plan.server.profile.model_path,
            **request.model,
            **{name: request.prompts[name] for name in _MODEL_FIELDS if name in request.prompts},
        },
        "server": {"profile": plan.server.name, "settings": _profile(plan), "answered_by": _answered_by(request)},
        "sampling": {"plan": plan.sampling.model_dump(mode="json"), "seed": plan.seed},
        "quality": plan.quality.model_dump(mode="json"),
        "corpus": plan.corpus.model_dump(mode="json"),
        "datasets": _datasets(ctx, request, table),
        "left_out": request.left_out,
        "incomplete": request.incomplete,
        "totals": statistics.totals(table),
        "train": exports.path("train"),
        "held_out": exports.path("held_out") if exports.has_held_out else None,
        "exports": exports.describe(),
    }


_MODEL_FIELDS = (
    "model_path",
    "tokenizer_class",
    "chat_template_kwargs",
    "transformers",
    "bos_token_id",
    "eos_token_ids",
    "special_token_ids",
    "think_ids",
)


def _profile(plan: Plan) -> dict[str, Any]:
    profile = plan.server.profile.model_dump(mode="json", exclude={"env"})
    return {**profile, "extra_args": without_secrets(profile["extra_args"])}


def _answered_by(request: MergeRequest) -> dict[str, dict[str, Any]]:
    """Rows by server, with what is known of each; a version that nobody recorded is None."""
    answered: dict[str, dict[str, Any]] = {}
    for source in request.sources:
        for fingerprint, rows in source.meta.servers.items():
            entry = answered.setdefault(fingerprint, {"rows": 0, "version": None})
            entry["rows"] += rows
            entry.update(source.meta.described_servers.get(fingerprint, {}))
    return answered


def _datasets(ctx: StepContext, request: MergeRequest, table: Table) -> dict[str, Any]:
    numbers = statistics.by_dataset(table, request.sources)
    described = {}
    for source in request.sources:
        spec, meta = ctx.plan.dataset(source.name), source.meta
        described[source.name] = {
            "licence": spec.licence,
            "licence_contested": spec.licence_contested,
            "sources": meta.prompts["sources"],
            "responses": meta.rows_in,
            "dropped": meta.dropped,
            "flagged": meta.flagged,
            "not_checked": meta.not_checked,
            "finish_reasons": meta.finish_reasons,
            **numbers[source.name],
            "samplings": meta.samplings,
            "prompts_sha256": meta.prompts["sha256"],
            "journal": meta.journal.model_dump(exclude={"mtime_ns"}),
            "records_sha256": {"heads": meta.heads.sha256, "ids": meta.ids.sha256},
        }
    return described


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
