"""`draftmill server VERB`: the supervisor's own entry point, and the server's state for people."""

from __future__ import annotations

import argparse
import sys

from draftmill.errors import DraftmillError
from draftmill.layout import Workspace
from draftmill.serving.supervisor import supervise


def main(argv: list[str] | None = None) -> int:
    """Run one verb. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="draftmill server", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (("supervise", "run the supervisor in this process"),):
        verbs.add_parser(verb, help=text).add_argument("--workspace", required=True)
    arguments = parser.parse_args(argv)
    try:
        return int(supervise(Workspace.at(arguments.workspace)))
    except DraftmillError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
