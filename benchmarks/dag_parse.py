"""Parsing the DAG file as Airflow's DAG processor does it.

    python -m benchmarks dag_parse

The processor keeps Airflow imported and forks a process for each parsing of a file; that process imports what the file needs, builds its
DAG and serialises it. So does this module, with the processor's own functions, and takes the median of the parsings.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT

FILE = ROOT / "dags" / "generate_drafter_data.py"
ROUNDS = 15


def parse_once() -> float:
    """Seconds of one parsing, in a process of its own. RuntimeError where the file has errors or no DAG."""
    import structlog
    from airflow.dag_processing.processor import DagFileParseRequest, _parse_file, _pre_import_airflow_modules

    log = structlog.get_logger("benchmark")
    _pre_import_airflow_modules(str(FILE), log)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            began = time.perf_counter()
            request = DagFileParseRequest(file=str(FILE), bundle_path=FILE.parent, bundle_name="dags", callback_requests=[])
            found = _parse_file(request, log)
            os.write(writer, str(time.perf_counter() - began).encode())
            code = 0 if found and found.serialized_dags and not found.import_errors else 1
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        took = stream.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"{FILE}: it does not parse")
    return float(took)


def run() -> dict[str, float]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="benchmark-dag-parse-") as home:
        # Set before Airflow is imported: it makes its folders where this says.
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "false", "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
        os.environ |= {"DRAFTMILL_CONFIG": str(Path(ROOT) / "include" / "config"), "DRAFTMILL_CAMPAIGN": "synth_100k"}
        took = [parse_once() for _ in range(ROUNDS)]
    print(f"parsed {ROUNDS} times: {min(took):.3f} to {max(took):.3f} s")
    return {"airflow.dag_parse_s": statistics.median(took)}
