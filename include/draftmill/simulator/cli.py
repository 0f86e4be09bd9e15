"""`draftmill simulate CAMPAIGN --host NAME`: how long a campaign takes; `draftmill simulate serve`: the simulated server itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from draftmill.errors import DraftmillError, ExitCode, PermanentError
from draftmill.simulator import serve
from draftmill.simulator.profile import HOSTS, host
from draftmill.spec.plan import Plan


def _serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="draftmill simulate serve",
        description="A server that speaks SGLang's native protocol with the timing of a real host.",
        epilog=serve.fault_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_arguments(parser)
    return parser


def _campaign_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="draftmill simulate",
        description="Run a campaign in virtual time with the real generation code against a simulated host, and say how long it takes. "
        "`draftmill simulate serve --help`: the simulated server by itself.",
    )
    parser.add_argument("campaign", help="a campaign file of the configuration folder, or the path of a plan.json")
    parser.add_argument("--host", default="rtx6000-bf16", help=f"{', '.join(HOSTS)} (default %(default)s)")
    parser.add_argument("--config", type=Path, metavar="DIR", help="configuration folder (default: $DRAFTMILL_CONFIG)")
    parser.add_argument("--datasets", metavar="A,B", help="only these data sets")
    parser.add_argument("--tokens-per-dataset", metavar="N", help="budget of completion tokens, such as 10M")
    parser.add_argument("--datasets-at-once", metavar="N", help="how many data sets generate at the same time")
    parser.add_argument("--ceilings", action="store_true", help="keep the campaign's in_flight numbers; without it all are `auto`")
    parser.add_argument("--prompt-tokens", type=float, metavar="N", help="mean prompt length (default: 400 short, 800 long)")
    parser.add_argument("--seed", type=int, default=0, help="of the answers (default %(default)s)")
    parser.add_argument("--compare", action="store_true", help="also run fixed numbers in flight and an oracle")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .png or .svg (matplotlib), .html (plotly)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    return parser


def _config_folder(given: Path | None) -> Path:
    named = given or os.environ.get("DRAFTMILL_CONFIG")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "config"


def read_plan(arguments: argparse.Namespace) -> Plan:
    """The plan that the command line means, with `auto` in flight unless `--ceilings` is given."""
    from draftmill.spec.build import build_plan
    from draftmill.spec.load import Config, read_yaml
    from draftmill.spec.params import parse_params

    wanted = {name: getattr(arguments, name) for name in ("datasets", "tokens_per_dataset", "datasets_at_once")}
    if arguments.campaign.endswith(".json"):
        if any(wanted.values()):
            raise PermanentError(f"{arguments.campaign}: a plan is resolved already; name a campaign to change it")
        plan = read_yaml(Path(arguments.campaign), Plan)  # JSON is YAML
    else:
        plan = build_plan(Config(_config_folder(arguments.config)), parse_params({"campaign": arguments.campaign, **wanted}))
    if arguments.ceilings:
        return plan
    return plan.model_copy(update={"datasets": tuple(entry.model_copy(update={"in_flight": "auto"}) for entry in plan.datasets)})


def run_campaign(arguments: argparse.Namespace) -> int:
    """`simulate CAMPAIGN`; returns the exit code."""
    from draftmill.simulator import compare, report
    from draftmill.simulator.campaign import simulate
    from draftmill.simulator.material import Material

    profile, plan = host(arguments.host), read_plan(arguments)
    material = Material.of(plan, arguments.seed, arguments.prompt_tokens)
    run = simulate(material, profile, _tell)
    sys.stdout.write(report.text(plan, run) + "\n")
    if arguments.compare:
        others = compare.compare(compare.work_of(material), profile, plan.datasets_at_once)
        worst = max(abs(run.budget_error(entry)) for entry in plan.datasets)
        sys.stdout.write("\n" + compare.text(others, run.seconds, worst) + "\n")
    if arguments.json:
        report.write_numbers(plan, run, arguments.json)
    if arguments.plot:
        report.plot(plan, run, arguments.plot)
    return ExitCode.DONE


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["serve"]:
            return serve.run(_serve_parser().parse_args(words[1:]))
        return run_campaign(_campaign_parser().parse_args(words))
    except DraftmillError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
