"""What each step does, as its task's page shows it."""

from __future__ import annotations

TASK_DOCS = {
    "survey": "Reads the journals on the host: tokens on disk and tokens left for each data set.",
    "preflight": (
        "Checks the host for this campaign in seconds: Python, SGLang's version, GPUs and their free memory, disk, port, model path. "
        "Changes nothing. Fails with one sentence per fault."
    ),
    "prepare": (
        "Reads the data set's source and renders its prompts to token ids, in seeded order. A finished file for the same request is kept. "
        "Returns prompts, rows read and rows skipped by reason."
    ),
    "launch": (
        "Brings the SGLang server up and waits until it has generated a token. Starts nothing where no tokens are left. A server that "
        "draftmill did not start is never used. `generate` brings the server up by itself where this task was not run again."
    ),
    "generate": (
        "Generates answers until the token budget is reached or the prompts run out. Continues from the journal: a retry repeats no "
        "finished answer. Waits on the host while `datasets_at_once` other data sets generate. Returns budget, tokens, responses, "
        "finish reasons, outcome, rate and the journal's path."
    ),
    "tokenize": "Joins prompts and responses into token-exact training rows with a loss mask. Returns rows kept and dropped, by reason.",
    "merge": "Merges the rows of all data sets into the corpus and writes its manifest. Does nothing where nothing has changed.",
    "accept": "Checks the corpus as its readers will.",
    "stop-server": (
        "Stops the server and makes sure that nothing is left: no process, the port free, the GPU memory back. Fails, and the run with "
        "it, where something survives."
    ),
}
"""By verb of draftmill.jobs.step."""
