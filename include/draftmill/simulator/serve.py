"""`simulate serve`: the simulated server as a process of its own, which can be signalled and killed like a real one."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import signal
import sys

import orjson

from draftmill.errors import ExitCode
from draftmill.simulator.faults import REQUEST_FAULTS, STATE_FAULTS, Fault
from draftmill.simulator.profile import HOSTS, host
from draftmill.simulator.server import SimulatedServer
from draftmill.simulator.workload import LengthLaw, Workload

READY_LINE = "The server is fired up and ready to roll!"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `simulate serve`."""
    parser.add_argument("--host-profile", default="rtx6000-bf16", help=f"timing and KV capacity: {', '.join(HOSTS)} (default %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=30000, help="0 takes a free one (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the answers (default %(default)s)")
    parser.add_argument("--speedup", type=float, default=1.0, help="virtual seconds a real second (default %(default)s)")
    parser.add_argument("--mean-tokens", type=float, default=200.0, help="mean answer length (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=10_240, help="where the length law is cut (default %(default)s)")
    parser.add_argument("--vocab-size", type=int, help="of the served model (default: the profile's)")
    parser.add_argument("--context-length", type=int, help="of the served model (default: the profile's)")
    parser.add_argument("--kv-tokens", type=int, help="KV capacity (default: the profile's)")
    parser.add_argument("--model-path", default="simulated/model", help="what the server says it serves (default %(default)s)")
    parser.add_argument("--api-key-env", help="environment variable that holds the API key to ask for")
    parser.add_argument("--max-queued-requests", type=int, help="503 above this many waiting requests")
    parser.add_argument("--start-s", type=float, default=0.0, help="virtual seconds between listening and ready (default %(default)s)")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND[:key=value,...]", help="may be given more than once; see below"
    )


def fault_help() -> str:
    """The kinds of faults, a line each."""
    lines = [f"  {kind:<15} {text}" for kind, text in (REQUEST_FAULTS | STATE_FAULTS).items()]
    keys = "keys: after (requests), at_s, count, share, seed (faults of a request), for_s (faults of state), value"
    return "\n".join(
        ["faults:", *lines, keys, "The same as JSON: POST /simulator/faults; DELETE ends them; GET /simulator/state looks inside."]
    )


def build_server(args: argparse.Namespace) -> SimulatedServer:
    """The server that the command line asks for."""
    changes = {"vocab_size": args.vocab_size, "context_length": args.context_length, "kv_tokens": args.kv_tokens}
    profile = dataclasses.replace(host(args.host_profile), **{name: value for name, value in changes.items() if value})
    last_id = min(1_000, profile.vocab_size)
    return SimulatedServer(
        profile,
        args.seed,
        args.speedup,
        [Fault.parse(text) for text in args.fault],
        workload=Workload(default=LengthLaw(args.mean_tokens, args.max_tokens), first_id=min(100, last_id // 2), last_id=last_id),
        model_path=args.model_path,
        api_key=os.environ.get(args.api_key_env) if args.api_key_env else None,
        max_queued=args.max_queued_requests,
        start_s=args.start_s,
        host=args.host,
        port=args.port,
    )


async def serve(server: SimulatedServer) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Prints one JSON line with the address, then SGLang's own ready line."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        sys.stdout.write(orjson.dumps({"base_url": server.base_url, "pid": os.getpid()}).decode() + "\n" + READY_LINE + "\n")
        sys.stdout.flush()
        await stop.wait()
        await server.drain()


def run(args: argparse.Namespace) -> int:
    """`simulate serve`; returns the exit code."""
    asyncio.run(serve(build_server(args)))
    return ExitCode.DONE
