"""`draftmill server VERB`: what the server of this host does, its end, and what a log means."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from draftmill.errors import DraftmillError, ExitCode, PermanentError
from draftmill.layout import Workspace


def _status(arguments: argparse.Namespace) -> int:
    from draftmill.serving.status import describe, facts

    value = facts(Workspace.at(arguments.workspace))
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if arguments.json else describe(value)
    sys.stdout.write(text + "\n")
    return ExitCode.DONE


def _stop(arguments: argparse.Namespace) -> int:
    from draftmill.files import FileLock
    from draftmill.serving.folder import ServerFolder
    from draftmill.serving.stopping import is_clean, stop_server

    workspace = Workspace.at(arguments.workspace)
    if is_clean(workspace):
        sys.stdout.write("no server is running\n")
        return ExitCode.DONE
    admission = FileLock(ServerFolder.of(workspace).admission)
    while not admission.acquire(f"server stop, pid {os.getpid()}"):
        time.sleep(0.2)
    stop_server(workspace)
    sys.stdout.write("stopped; nothing is left of it\n")
    return ExitCode.DONE


def _diagnose(arguments: argparse.Namespace) -> int:
    from draftmill.serving.diagnosis import diagnose
    from draftmill.serving.redact import redact

    if not arguments.log.is_file():
        raise PermanentError(f"{arguments.log}: no such file; give a server log")
    found = diagnose(arguments.log)
    sys.stdout.write(f"{found.cause}: {redact(str(found))}\n")
    return ExitCode.DONE


def _supervise(arguments: argparse.Namespace) -> int:
    from draftmill.serving.supervisor import supervise

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.Formatter.converter = time.gmtime
    return supervise(Workspace.at(arguments.workspace))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftmill server", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    default = os.environ.get("DRAFTMILL_WORKSPACE") or "~/draftmill"

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        return verb

    def workspace(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
        verb.add_argument("--workspace", metavar="DIR", default=default, help="the workspace of this host (default: %(default)s)")
        return verb

    status = workspace(add("status", _status, "what the server does, and who uses it"))
    status.add_argument("--json", action="store_true", help="for machines")
    workspace(add("stop", _stop, "stop it, whoever uses it, and verify that nothing is left"))
    add("diagnose", _diagnose, "what a server log says went wrong").add_argument("log", type=Path)
    workspace(add("supervise", _supervise, "run the supervisor in this process; `launch` and `generate` do that by themselves"))
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one verb. Returns the exit code; a DraftmillError is one sentence on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except DraftmillError as error:
        sys.stderr.write(f"draftmill: {error}\n")
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
