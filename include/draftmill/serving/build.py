"""What the SGLang build of this host understands, asked of itself: its version and the flags in its `--help`.

Hosts run builds that are not ours to pin, and names change between them, so nothing is assumed. The help text costs ten seconds
(it imports half of SGLang) and is kept in the server's folder until interpreter, version or source file change.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from draftmill.errors import PermanentError, TemporaryError
from draftmill.files import read_json, write_json

_HELP_TIMEOUT_S = 300

_ASK_VERSION = """
import importlib.metadata, importlib.util, json, os, sys
spec = importlib.util.find_spec("sglang")
if spec is None:
    print(json.dumps({}))
    sys.exit(0)
folder = os.path.dirname(spec.origin) if spec.origin else list(spec.submodule_search_locations)[0]
names = ("launch_server.py", "srt/server_args.py")
paths = [os.path.join(folder, name) for name in names]
stamps = [os.stat(path).st_mtime_ns for path in paths if os.path.exists(path)]
try:
    version = importlib.metadata.version("sglang")
    origin = importlib.metadata.distribution("sglang").locate_file("sglang")
    if os.path.realpath(str(origin)) != os.path.realpath(folder):
        raise importlib.metadata.PackageNotFoundError
except importlib.metadata.PackageNotFoundError:
    import sglang
    version = getattr(sglang, "__version__", "unknown")
print(json.dumps({"version": version, "folder": folder, "stamps": stamps}))
"""


@dataclass(frozen=True)
class Flag:
    """One command-line flag. `negation` is its `--no-…` name, where it has one; `choices` is empty where any value will do."""

    name: str
    takes_value: bool
    negation: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Build:
    """An SGLang installation. `flags` maps every spelling (without dashes in front) to its flag."""

    python: str
    version: str
    flags: dict[str, Flag]

    @property
    def reads_config(self) -> bool:
        """Whether `--config FILE.yaml` is understood."""
        return "config" in self.flags


def parse_help(text: str) -> dict[str, Flag]:
    """The flags of an argparse help text: entries begin with two spaces and a dash, spellings are separated by commas."""
    flags: dict[str, Flag] = {}
    for entry in re.findall(r"^  (-[^\n]*?)(?:  |$)", text, re.MULTILINE):
        spellings = re.findall(r"(--?[A-Za-z0-9][\w.-]*)((?: (?!-)[^,{]*(?:\{[^}]*\}[^,]*)?)?)", entry)
        names = [name for name, _ in spellings]
        value = next((rest.strip() for _, rest in spellings if rest.strip()), "")
        listed = re.search(r"\{([^}]*)\}", value)
        choices = tuple(listed[1].split(",")) if listed else ()
        for name in names:
            bare = name.lstrip("-")
            negation = f"no-{bare}" if f"--no-{bare}" in names else None
            flags[bare] = Flag(bare, bool(value), negation, choices)
    return flags


def _run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_HELP_TIMEOUT_S, check=False, errors="replace")
    except OSError as error:
        raise PermanentError(f"python: {argv[0]} cannot be run: {error.strerror}; correct it in the server profile") from None
    except subprocess.TimeoutExpired:
        raise TemporaryError(f"{argv[0]}: SGLang did not answer --help within {_HELP_TIMEOUT_S} s; the host is overloaded") from None


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def _installed(python: str, env: dict[str, str]) -> dict[str, Any]:
    answer = _run([python, "-c", _ASK_VERSION], env)
    try:
        facts: dict[str, Any] = orjson.loads(answer.stdout.splitlines()[-1])
    except (orjson.JSONDecodeError, IndexError):
        raise PermanentError(f"{python}: SGLang cannot be imported: {_last_line(answer.stderr)}") from None
    if not facts:
        raise PermanentError(f"{python}: SGLang is not installed; name the interpreter that has it as 'python' in the server profile")
    return facts


def ask_build(python: str, env: dict[str, str], cache: Path) -> Build:
    """Version and flags of the SGLang that `python` has, with `env` as its environment.

    Raises PermanentError where there is none or it cannot be imported, with the interpreter and the last line of its complaint.
    """
    facts = _installed(python, env)
    identity = orjson.dumps([python, facts, env.get("PYTHONPATH", "")])
    path = cache / f"help-{hashlib.sha256(identity).hexdigest()[:16]}.json"
    kept = read_json(path)
    if not isinstance(kept, dict) or "help" not in kept:
        # One wide column, so that argparse breaks no entry over two lines.
        answer = _run([python, "-m", "sglang.launch_server", "--help"], {**env, "COLUMNS": "4000"})
        if answer.returncode or "--model-path" not in answer.stdout:
            raise PermanentError(f"{python}: SGLang {facts['version']} cannot show its flags: {_last_line(answer.stderr or answer.stdout)}")
        kept = {"help": answer.stdout}
        write_json(path, kept)
    return Build(python, str(facts["version"]), parse_help(kept["help"]))


def base_environment(workspace_secrets: Path, code_root: Path) -> dict[str, str]:
    """The environment SGLang starts from: this process's own and the secrets, without draftmill's place on Python's path."""
    env = dict(os.environ)
    secrets = read_json(workspace_secrets)
    if isinstance(secrets, dict):
        env.update({str(key): str(value) for key, value in secrets.items()})
    kept = [entry for entry in env.pop("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != code_root]
    if kept:
        env["PYTHONPATH"] = os.pathsep.join(kept)
    return env
