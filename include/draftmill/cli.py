"""The command line: every step of the DAG by hand, and what Airflow calls on the host."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill import __version__
from draftmill.errors import DraftmillError, ExitCode, PermanentError

if TYPE_CHECKING:
    from draftmill.jobs.models import JobKey
    from draftmill.layout import Workspace
    from draftmill.spec.plan import Plan

FORWARDED: dict[tuple[str, ...], tuple[str, str]] = {
    ("server", "status"): ("draftmill.serving.cli", "what the server of this host does"),
    ("server", "stop"): ("draftmill.serving.cli", "stop it, whoever uses it"),
    ("server", "diagnose"): ("draftmill.serving.cli", "what a server log says went wrong"),
    ("prompts", "inspect"): ("draftmill.prompts.inspect", "show prompts as text and token ids"),
    ("corpus", "verify"): ("draftmill.corpus.verify", "check a corpus folder against its manifest"),
    ("simulate",): ("draftmill.simulator.cli", "a server that behaves like an 8-GPU host, without one"),
}
"""Verbs that have a command line of their own: the module whose `main(argv) -> int` gets the words after the verb."""

EXAMPLES = """\
examples:
  draftmill plan --campaign synth_100k
  draftmill prepare --campaign synth_100k --dataset all
  draftmill generate --campaign synth_100k --dataset B1_glaive --tokens-per-dataset 1M
  draftmill generate --plan ~/draftmill/campaigns/synth_100k/plan.json --dataset all
  draftmill job status synth_100k/generate/B1_glaive

`draftmill` stands for `python -m draftmill`, or for `python draftmill-HASH.pyz` on a host.
exit codes: 0 done; 65 a person must change something; 75 try again, it continues; 79 stopped
"""


def _steps() -> dict[str, Any]:
    from draftmill.jobs.step import STEPS

    return dict(STEPS)


def help_text() -> str:
    """The whole command line at a glance, grouped by what a person wants to do."""
    groups = {
        "a campaign, step by step": [
            ("plan", "show what a campaign resolves to"),
            *((verb, entry.help) for verb, entry in _steps().items()),
        ],
        "jobs that outlive this terminal": [
            ("job start KEY", "start a step detached, or attach to it; KEY is campaign/step[/dataset]"),
            ("job status KEY", "how it is, and its log"),
            ("job stop KEY", "stop it and all it started"),
        ],
        "looking and trying": [(" ".join(words), text) for words, (_, text) in FORWARDED.items()],
        "for machines": [
            ("job start|status|stop", "without KEY: a JSON request on stdin, a JSON answer on stdout"),
            ("run-job FOLDER", "the process of a detached job"),
            ("bundle", "write draftmill as one file, named by its hash"),
        ],
    }
    lines = [
        f"draftmill {__version__}: training data for an EAGLE-3 drafter, generated on an SGLang host",
        "",
        "usage: draftmill VERB [OPTIONS]",
    ]
    for title, verbs in groups.items():
        lines += ["", f"{title}:", *(f"  {verb:<22} {text}" for verb, text in verbs)]
    return "\n".join([*lines, "", "`draftmill VERB --help` lists the options of a verb.", "", EXAMPLES])


def _plan_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to work on").add_mutually_exclusive_group(required=True)
    what.add_argument("--campaign", metavar="NAME", help="a campaign file of the configuration folder")
    what.add_argument("--plan", metavar="FILE", type=Path, help="a resolved plan (plan.json)")
    parser.add_argument("--config", metavar="DIR", type=Path, help="configuration folder (default: $DRAFTMILL_CONFIG)")
    changes = parser.add_argument_group("changes to the campaign, for this run")
    changes.add_argument("--datasets", metavar="A,B", help="only these data sets")
    changes.add_argument("--tokens-per-dataset", metavar="N", help="budget of completion tokens, such as 10M")
    changes.add_argument("--max-samples", metavar="N", help="stop a data set after this many responses")
    changes.add_argument("--server", metavar="NAME", help="another server profile")
    changes.add_argument("--datasets-at-once", metavar="N", help="how many data sets generate at the same time")
    changes.add_argument("--merge-partial", action="store_const", const=True, help="merge although data sets are missing")


def _workspace_option(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("DRAFTMILL_WORKSPACE") or "~/draftmill"
    parser.add_argument("--workspace", metavar="DIR", default=default, help="the workspace of this host (default: %(default)s)")


def _config_folder(given: Path | None) -> Path:
    if given or os.environ.get("DRAFTMILL_CONFIG"):
        return given or Path(os.environ["DRAFTMILL_CONFIG"])
    beside = Path(__file__).resolve().parent.parent / "config"
    if beside.is_dir():
        return beside
    raise PermanentError("no configuration folder here; name one with --config or DRAFTMILL_CONFIG, or give a plan.json with --plan")


_CHANGES = ("datasets", "tokens_per_dataset", "max_samples", "server", "datasets_at_once", "merge_partial")


def _read_plan(path: Path) -> Plan:
    from pydantic import ValidationError

    from draftmill.spec.load import describe
    from draftmill.spec.plan import Plan

    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise PermanentError(f"{path}: cannot be read: {error.strerror}; --plan takes a plan.json") from None
    except ValidationError as error:
        raise PermanentError(f"{path}: is no plan: {describe(error)}") from None


def load_plan(arguments: argparse.Namespace) -> Plan:
    """The plan that the options mean. PermanentError with the field and the reason where they mean none."""
    changes = {name: getattr(arguments, name) for name in _CHANGES if getattr(arguments, name) is not None}
    if arguments.plan:
        if changes:
            options = ", ".join("--" + name.replace("_", "-") for name in changes)
            raise PermanentError(f"{options}: a plan is resolved already; give --campaign to change it")
        return _read_plan(arguments.plan)
    from draftmill.spec.build import build_plan
    from draftmill.spec.load import Config
    from draftmill.spec.params import parse_params

    return build_plan(Config(_config_folder(arguments.config)), parse_params({"campaign": arguments.campaign, **changes}))


def _chosen(plan: Plan, verb: str, dataset: str | None) -> list[str | None]:
    """Which data sets the step is to work on: `None` alone for a step of the whole campaign."""
    if not _steps()[verb].per_dataset:
        return [None]
    if dataset == "all" or (dataset is None and len(plan.names) == 1):
        return list(plan.names)
    if dataset not in plan.names:
        found = f"{dataset!r} is none of" if dataset else "name one of"
        raise PermanentError(f"--dataset: {found} {', '.join(plan.names)}, or give `all`")
    return [dataset]


def _run_step(verb: str, argv: list[str]) -> int:
    from draftmill.jobs.foreground import run_step
    from draftmill.jobs.transport import own_stdout

    entry = _steps()[verb]
    parser = argparse.ArgumentParser(
        prog=f"draftmill {verb}", description=f"{entry.help.capitalize()}. The result is JSON on standard output."
    )
    _plan_options(parser)
    _workspace_option(parser)
    if entry.per_dataset:
        parser.add_argument("--dataset", metavar="NAME", help="the data set, or `all` for one after the other")
    arguments = parser.parse_args(argv)
    plan, workspace = load_plan(arguments), _workspace(arguments)
    chosen = _chosen(plan, verb, getattr(arguments, "dataset", None))
    stop = threading.Event()
    results: dict[str | None, Any] = {}
    codes = [ExitCode.DONE]
    with own_stdout() as stream:
        for dataset in chosen:
            outcome = run_step(verb, plan, workspace, dataset, stop)
            codes.append(outcome.exit_code)
            results[dataset] = outcome.result
            if outcome.error:
                _complain(f"{dataset}: {outcome.error}" if len(chosen) > 1 else outcome.error)
            if stop.is_set():
                break
        done = {name: result for name, result in results.items() if result is not None}
        if done:
            stream.write(_json(done if len(chosen) > 1 else done[chosen[0]]))
    return _worst(codes)


def _worst(codes: list[ExitCode]) -> ExitCode:
    """The one code for several steps: a fault that needs a person counts more than one that a retry gets past."""
    return max(codes, key=[ExitCode.DONE, ExitCode.TEMPORARY, ExitCode.PERMANENT, ExitCode.STOPPED].index)


def _json(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _workspace(arguments: argparse.Namespace) -> Workspace:
    from draftmill.layout import Workspace

    return Workspace.at(arguments.workspace)


def _plan(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="draftmill plan", description="Show what a campaign resolves to. Nothing is done.")
    _plan_options(parser)
    parser.add_argument("--json", action="store_true", help="the whole plan, for --plan")
    arguments = parser.parse_args(argv)
    plan = load_plan(arguments)
    if arguments.json:
        sys.stdout.write(_json(plan.model_dump(mode="json")).decode())
    else:
        print(plan_table(plan))
    return ExitCode.DONE


def plan_table(plan: Plan) -> str:
    """The plan as a person reads it, data sets in work order."""
    server = plan.server.profile
    sampling = ", ".join(f"{name} {value}" for name, value in plan.sampling if value is not None)
    rows: list[tuple[str, ...]] = [("data set", "class", "budget", "per answer", "answers", "max new", "in flight", "licence")]
    for entry in plan.datasets:
        answers = -(-entry.budget_tokens // entry.expected_tokens)
        limits = [entry.max_samples, entry.max_prompts]
        answers = min([answers, *(limit for limit in limits if limit)])
        numbers = (f"{number:,}" for number in (entry.budget_tokens, entry.expected_tokens, answers, entry.max_new_tokens))
        rows.append((entry.name, entry.length_class, *numbers, str(entry.in_flight), entry.licence))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {2, 3, 4, 5, 6}
    table = (
        [text.rjust(width) if column in right else text.ljust(width) for column, (text, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    )
    lines = [
        f"campaign  {plan.campaign}: {plan.description or 'no description'}",
        f"server    {plan.server.name}: {server.model_path} on {server.device}, tensor parallel {server.tensor_parallel}",
        f"sampling  {sampling}; seed {plan.seed}",
        f"at once   {plan.datasets_at_once} data sets; {'merges what is there' if plan.merge_partial else 'merges when all are done'}",
        "",
        *("  ".join(row).rstrip() for row in table),
        "",
        f"{len(plan.datasets)} data sets, {sum(entry.budget_tokens for entry in plan.datasets):,} completion tokens",
    ]
    return "\n".join(lines)


def _job_key(text: str) -> JobKey:
    from pydantic import ValidationError

    from draftmill.jobs.models import JobKey

    parts = text.strip("/").split("/")
    try:
        return JobKey.model_validate(dict(zip(("campaign", "task", "dataset"), parts, strict=False)) if len(parts) < 4 else {})
    except ValidationError:
        raise PermanentError(f"{text!r} is no job; it is campaign/step or campaign/step/dataset") from None


def _job(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="draftmill job", description="Without KEY: a JSON request on stdin, a JSON answer on stdout.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action in ("start", "status", "stop"):
        command = actions.add_parser(action)
        command.add_argument("key", metavar="KEY", nargs="?", help="campaign/step[/dataset]")
        _workspace_option(command)
        if action == "start":
            command.add_argument("--plan", metavar="FILE", type=Path, help="the plan (default: what the campaign last ran with)")
        if action == "stop":
            command.add_argument("--grace", metavar="S", type=float, default=60.0, help="seconds to end in order (default: %(default)s)")
    arguments = parser.parse_args(argv)
    if arguments.key is None:
        from draftmill.jobs import transport

        return transport.main(arguments.action)
    return _job_by_hand(arguments)


def _job_by_hand(arguments: argparse.Namespace) -> int:
    from draftmill.jobs import control
    from draftmill.jobs.models import StartRequest, StatusRequest, StopRequest

    key, workspace = _job_key(arguments.key), _workspace(arguments)
    root = str(workspace.root)
    if arguments.action == "start":
        plan = _read_plan(arguments.plan or workspace.campaign(key.campaign).plan)
        status = control.start(StartRequest(workspace=root, key=key, plan=plan))
    elif arguments.action == "stop":
        status = control.stop(StopRequest(workspace=root, key=key, grace_s=arguments.grace))
    else:
        # The log's reader is Airflow: what it has seen, and what it has not, stays as it is.
        status = control.status(StatusRequest(workspace=root, key=key, log_offset=None))
        sys.stderr.write(control.recent_log(root, key))
    sys.stdout.write(
        _json(status.model_dump(mode="json", exclude={"log", "log_offset", "log_skipped_bytes", "more"}, exclude_none=True)).decode()
    )
    return ExitCode.DONE


def _run_job(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="draftmill run-job", description="The process of a detached job; started by `job start`.")
    parser.add_argument("folder", type=Path)
    from draftmill.jobs.run import run_job

    run_job(parser.parse_args(argv).folder)


def _bundle(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="draftmill bundle", description="Write draftmill as one file, named by the hash of its contents.")
    parser.add_argument("--to", metavar="DIR", type=Path, default=Path(), help="where to (default: here)")
    from draftmill.jobs.bundle import build

    print(build(parser.parse_args(argv).to))
    return ExitCode.DONE


_VERBS = {"plan": _plan, "job": _job, "run-job": _run_job, "bundle": _bundle}


def _forwarded(argv: list[str]) -> int | None:
    """The exit code of a verb with a command line of its own, or None where `argv` is no such verb."""
    for words, (module, _) in FORWARDED.items():
        if tuple(argv[: len(words)]) == words:
            run = importlib.import_module(module).main
            # The module of `server` knows both of its verbs, so it gets the second word too.
            return int(run(argv[1:] if words[0] == "server" else argv[len(words) :]))
    return None


def _group(argv: list[str]) -> str | None:
    """The verbs that begin with the word before `--help`, as of `draftmill corpus --help`; None for any other command line."""
    if argv[1:] not in (["-h"], ["--help"]):
        return None
    verbs = [f"  {' '.join(words):<22} {text}" for words, (_, text) in FORWARDED.items() if words[0] == argv[0]]
    return "\n".join(verbs) or None


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(help_text())
        return ExitCode.DONE
    if argv[0] == "--version":
        print(__version__)
        return ExitCode.DONE
    verb, rest = argv[0], argv[1:]
    if verb in _VERBS:
        return _VERBS[verb](rest)
    if verb in _steps():
        return _run_step(verb, rest)
    code = _forwarded(argv)
    if code is None and (group := _group(argv)):
        print(group)
        return ExitCode.DONE
    if code is None:
        raise PermanentError(f"{' '.join(argv[:2])!r} is no verb; `draftmill --help` lists them")
    return code


def _complain(text: str) -> None:
    print(f"draftmill: {text}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. A DraftmillError is one sentence on standard error, never a traceback."""
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except DraftmillError as error:
        _complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; standard output must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.DONE
    except OSError as error:
        _complain(f"{error.filename or 'this host'}: {error.strerror or error}")
        return ExitCode.TEMPORARY
