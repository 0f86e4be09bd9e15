"""`python -m draftmill simulate serve ...`: the simulated server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from draftmill.errors import DraftmillError
from draftmill.simulator import serve


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftmill simulate", description="Simulated hosts.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    server = verbs.add_parser(
        "serve",
        help="a server that speaks SGLang's protocol",
        epilog=serve.fault_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_arguments(server)
    server.set_defaults(run=serve.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except DraftmillError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return code
