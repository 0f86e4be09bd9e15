"""`python -m benchmarks [MODULE...]`: run every benchmark, or only those named, one after the other, each in a process of its own.

A run of all of them writes benchmarks/results.json and docs/performance.md. A run of some prints their figures and, with --keep, puts
them in the place of older ones.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT
from benchmarks._report import table, write_report

HERE = Path(__file__).parent


def modules() -> list[str]:
    """Names of the benchmark modules, sorted."""
    return sorted(path.stem for path in HERE.glob("[a-z]*.py"))


def measure(module: str) -> dict[str, float]:
    """Run one module in a fresh process, so that no other's memory or threads are in its figures. Its output passes through."""
    with tempfile.NamedTemporaryFile(prefix=f"benchmark-{module}-", suffix=".json") as out:
        command = [sys.executable, "-m", "benchmarks", "--into", out.name, module]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "include")])}
        subprocess.run(command, cwd=ROOT, check=True, env=environment)
        figures: dict[str, float] = json.loads(Path(out.name).read_text())
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("module", nargs="*", help=", ".join(modules()))
    parser.add_argument("--keep", action="store_true", help="write the figures of MODULE into the results, and keep those of the others")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.module) - set(modules()))
    if unknown:
        parser.error(f"{unknown[0]} is no benchmark; there are {', '.join(modules())}")
    if arguments.into:
        figures = importlib.import_module(f"benchmarks.{arguments.module[0]}").run()
        arguments.into.write_text(json.dumps(figures))
        return 0
    taken: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    for module in arguments.module or modules():
        print(f"== {module}", flush=True)
        began = time.monotonic()
        taken[module] = measure(module)
        seconds[module] = time.monotonic() - began
    print(table({name: value for figures in taken.values() for name, value in figures.items()}))
    if arguments.keep or not arguments.module:
        write_report(taken, seconds, HERE / "results.json", ROOT / "docs" / "performance.md", bool(arguments.module))
    return 0


if __name__ == "__main__":
    sys.exit(main())
