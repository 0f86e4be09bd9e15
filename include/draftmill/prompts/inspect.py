"""`draftmill prompts inspect`: look at prepared prompts before any GPU time is spent on them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from draftmill.errors import PermanentError
from draftmill.files import atomic_writer, read_json
from draftmill.layout import CampaignFolder, Workspace
from draftmill.prompts.prompt import read_prompts
from draftmill.prompts.report import Report, Sample, as_html, as_text, make_report, prompt_lengths, write_png
from draftmill.prompts.tokenizer import load_raw


def main(argv: list[str]) -> int:
    """Print a report for each data set asked for, and write it as HTML (and PNG) beside the prompts. Returns 0.

    Raises PermanentError where there are no prompts.
    """
    options = _parse(argv)
    folder = Workspace.at(options.workspace).campaign(options.campaign)
    for dataset in options.dataset or prepared(folder):
        report = inspect(folder, dataset, options.samples)
        sys.stdout.write(as_text(report))
        for path in write_files(report, Path(options.output) if options.output else folder.prompts(dataset).parent):
            sys.stdout.write(f"\n  written: {path}\n")
        sys.stdout.write("\n")
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="draftmill prompts inspect", description="Look at the prepared prompts of a campaign.")
    parser.add_argument("campaign", metavar="CAMPAIGN", help="the campaign's name")
    parser.add_argument("dataset", metavar="DATASET", nargs="*", help="data sets (default: all that are prepared)")
    default = os.environ.get("DRAFTMILL_WORKSPACE") or "~/draftmill"
    parser.add_argument("--workspace", metavar="DIR", default=default, help="the workspace of this host (default: %(default)s)")
    parser.add_argument("--samples", metavar="N", type=int, default=10, help="how many prompts to show (default: %(default)s)")
    parser.add_argument("--output", metavar="DIR", help="where the HTML and PNG files go (default: beside the prompts)")
    return parser.parse_args(argv)


def prepared(folder: CampaignFolder) -> list[str]:
    """Data sets of the campaign with prompts, sorted. PermanentError where there are none."""
    suffix = ".meta.json"
    names = sorted(path.name.removesuffix(suffix) for path in (folder.root / "prompts").glob(f"*{suffix}"))
    if not names:
        raise PermanentError(f"{folder.root}: no data set is prepared; run `draftmill prepare` first")
    return names


def inspect(folder: CampaignFolder, dataset: str, samples: int) -> Report:
    """The report on one data set; the samples are the first prompts of the work order, which is random."""
    meta = read_json(folder.prompts_meta(dataset))
    path = folder.prompts(dataset)
    if not isinstance(meta, dict) or not path.is_file():
        raise PermanentError(f"{path}: no prompts, or no description of them; run `draftmill prepare --dataset {dataset}` first")
    return make_report(meta, prompt_lengths(path), _samples(meta, path, samples))


def _samples(meta: dict[str, Any], path: Path, count: int) -> list[Sample]:
    if count <= 0:
        return []
    tokenizer = load_raw(meta["model_path"], trust_remote_code=meta["trust_remote_code"])
    chosen = (prompt for _, prompt in zip(range(count), read_prompts(path), strict=False))
    return [Sample(prompt.id, len(prompt.input_ids), str(tokenizer.decode(prompt.input_ids))) for prompt in chosen]


def write_files(report: Report, folder: Path) -> list[Path]:
    """Write the report as HTML, and its histogram as PNG where matplotlib is installed."""
    name = report.meta["dataset"]
    page, image = folder / f"{name}.report.html", folder / f"{name}.lengths.png"
    with atomic_writer(page) as stream:
        stream.write(as_html(report).encode("utf-8", errors="replace"))
    return [page, image] if write_png(report, image) else [page]
