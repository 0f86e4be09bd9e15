"""What each step does and returns, as its task's page shows it."""

from __future__ import annotations

from draftmill.spec import results

TASK_DOCS = {
    "survey": "Reads the journals on the host: tokens on disk and tokens left for each data set.",
    "preflight": (
        "Checks the host for this campaign in seconds: Python, SGLang's version, GPUs and their free memory, disk, port, model path. "
        "Changes nothing. Fails with one sentence per fault."
    ),
    "prepare": (
        "Reads the data set's source and renders its prompts to token ids, in seeded order. A finished file for the same request is kept."
    ),
    "launch": (
        "Brings the SGLang server up and waits until it has generated a token. Starts nothing where no tokens are left. A server that "
        "draftmill did not start is never used. `generate` brings the server up by itself where this task was not run again."
    ),
    "generate": (
        "Generates answers until the token budget is reached or the prompts run out. Continues from the journal: a retry repeats no "
        "finished answer. Waits on the host while `datasets_at_once` other data sets generate."
    ),
    "tokenize": "Joins prompts and responses into token-exact training rows with a loss mask.",
    "merge": "Merges the rows of all data sets into the corpus and writes its manifest. Does nothing where nothing has changed.",
    "accept": "Checks the corpus as its readers will.",
    "stop-server": (
        "Stops the server and makes sure that nothing is left: no process, the port free, the GPU memory back. Fails, and the run with "
        "it, where something survives."
    ),
}
"""By verb of draftmill.jobs.step."""

RESULTS: dict[str, type[results.Result]] = {
    "survey": results.SurveyResult,
    "prepare": results.PrepareResult,
    "launch": results.LaunchResult,
    "generate": results.GenerateResult,
    "tokenize": results.TokenizeResult,
    "merge": results.MergeResult,
    "accept": results.AcceptResult,
    "stop-server": results.StopServerResult,
}
"""What a step returns, by verb; `preflight` returns what it found under the names of its checks."""


def doc_of(verb: str) -> str:
    """The documentation of a step's task: what it does, and what it leaves as XCom."""
    if verb not in RESULTS:
        return f"{TASK_DOCS[verb]}\n\nReturns the facts that it found, by check."
    fields = (f"- `{name}`" + (f": {field.description}" if field.description else "") for name, field in RESULTS[verb].model_fields.items())
    return "\n".join([TASK_DOCS[verb], "", "Returns:", "", *fields])
