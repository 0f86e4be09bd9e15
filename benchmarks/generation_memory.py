"""Memory of a generation job with two million prompts, and the speed of a whole job.

    python -m benchmarks generation_memory

The prompts file holds 2,000,000 prompts. All but 10,000 have their response in the journal, so the job indexes two million ids, reads past
the prompts that are done, and generates the rest against a server that answers at once. The same with 200,000 prompts shows what
depends on their number.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._answers import PROMPT_TOKENS, VOCABULARY, answering
from benchmarks._job import call

LEFT = 10_000
ANSWER_TOKENS = 300
SIZES = {"200k": 200_000, "2m": 2_000_000}


def make_plan() -> Any:
    """One data set with a budget that no number of prompts reaches."""
    from tests.plans import make_dataset, make_plan

    return make_plan(
        make_dataset(
            "bench", expected_tokens=ANSWER_TOKENS, budget_tokens=10**12, max_new_tokens=1_024, in_flight=256, sources=[{"path": "none"}]
        ),
        campaign="bench",
    )


def write_workspace(root: Path, prompts: int) -> Path:
    """Prompts and journal below `root`; returns the plan's file."""
    import orjson

    from draftmill.files import sha256_file, write_json
    from draftmill.layout import Workspace

    plan = make_plan()
    folder = Workspace(root).campaign(plan.campaign)
    path, journal = folder.prompts("bench"), folder.journal("bench")
    path.parent.mkdir(parents=True)
    journal.parent.mkdir(parents=True)
    ids = [1, *[100] * (PROMPT_TOKENS - 1)]
    response = _response()
    with path.open("wb") as prompt_lines, journal.open("wb") as rows:
        for number in range(prompts):
            prompt_id = hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest()
            row = {"id": prompt_id, "input_ids": ids, "dataset": "bench", "conversation": prompt_id, "turn": 0}
            prompt_lines.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            if number < prompts - LEFT:
                rows.write(response(prompt_id).to_line())
    meta = {"schema": 1, "dataset": "bench", "prompts": prompts, "vocab_size": VOCABULARY, "eos_token_ids": []}
    write_json(folder.prompts_meta("bench"), meta | {"sha256": sha256_file(path)})
    plan_file = root / "plan.json"
    plan_file.write_text(plan.model_dump_json())
    return plan_file


def _response() -> Any:
    from draftmill.generation.response import Response

    def made(prompt_id: str) -> Response:
        return Response(
            id=prompt_id,
            input_hash=prompt_id,
            output_ids=[100_000, 100_001],
            prompt_tokens=PROMPT_TOKENS,
            completion_tokens=2,
            finish_reason="stop",
            rid=prompt_id,
            server="bench",
            sampling={"max_new_tokens": 1_024},
            started_at=0.0,
            finished_at=1.0,
            conversation=prompt_id,
        )

    return made


def run() -> dict[str, float]:
    """All figures."""
    figures: dict[str, float] = {}
    with answering(ANSWER_TOKENS) as base_url:
        for name, prompts in SIZES.items():
            with tempfile.TemporaryDirectory(prefix="generation-memory-") as folder:
                root = Path(folder)
                plan_file = write_workspace(root, prompts)
                job = call(str(root), str(plan_file), base_url)
                if job["new_responses"] != LEFT:
                    raise RuntimeError(f"{LEFT} responses were expected: {job}")
                print(f"{prompts:,} prompts: {job}", flush=True)
            figures[f"generation.peak_rss_mb_{name}_prompts"] = round(job["peak_rss_mb"], 1)
            figures[f"generation.rss_growth_mb_{name}_prompts"] = round(job["growth_mb"], 1)
            figures["generation.requests_per_s"] = figures.get("generation.requests_per_s", round(LEFT / job["seconds"], 1))
    return figures
