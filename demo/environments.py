"""Makes the two environments, `.venv` (Airflow, tests) and `.venv-sglang` (the demo's GPU host), with nothing but Python and pip.

    python3.11 demo/environments.py [airflow] [sglang]

An environment is made from lock files and marked with their digest when it is whole. So doing it again costs nothing, an interrupted
installation is continued, and a changed lock makes it anew. Imports nothing beyond the standard library: nothing is there yet.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "demo" / "cpu_shim"
STAMP = ".made-from"


@dataclass(frozen=True)
class Environment:
    """A virtual environment. `installs` are the argument lists of `pip install`, in order; `path_file` is the content of a .pth file."""

    name: str
    folder: Path
    installs: tuple[tuple[str, ...], ...]
    about: str
    path_file: str = ""

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    def digest(self) -> str:
        """What the environment is made from: lock files, arguments, interpreter and place (a moved environment does not work)."""
        total = hashlib.sha256(repr((sys.version_info[:2], str(self.folder), self.installs, self.path_file)).encode())
        for arguments in self.installs:
            total.update((ROOT / arguments[-1]).read_bytes())
        return total.hexdigest()

    def stamp(self) -> str:
        """The digest that the environment was made from, empty where it is absent or was not finished."""
        try:
            return (self.folder / STAMP).read_text().strip()
        except OSError:
            return ""


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("airflow", ROOT / ".venv", (("-r", "requirements-dev.txt"),), "Airflow and the tests: 1.1 GB, about 80 s"),
        Environment(
            "sglang",
            ROOT / ".venv-sglang",
            (("-r", "requirements-sglang-cpu.txt"), ("--no-deps", "-r", "demo/requirements-nodeps.txt")),
            "SGLang on the CPU: 1.7 GB, about 90 s",
            f"{SHIM}\nimport gpu_stand_ins, loopback_store\n",
        ),
    )
}


def clean_environment() -> dict[str, str]:
    """This process's environment without what would let another Python's packages leak in."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def make(environment: Environment) -> None:
    """Bring the environment to its lock files; returns at once where it is there already."""
    digest, stamp = environment.digest(), environment.stamp()
    if stamp == digest and environment.python.exists():
        return
    print(f"Installing {environment.about} -> {environment.folder.relative_to(ROOT)}", flush=True)
    began = time.monotonic()
    # A whole environment of another lock is made anew, so that no package of the old lock stays behind; a torso is continued.
    command = [sys.executable, "-m", "venv", *(["--clear"] if stamp else []), str(environment.folder)]
    run(command)
    (environment.folder / STAMP).unlink(missing_ok=True)
    for arguments in environment.installs:
        run([str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])
    if environment.path_file:
        packages = next((environment.folder / "lib").glob("python*/site-packages"))
        (packages / "draftmill_demo.pth").write_text(environment.path_file)
    (environment.folder / STAMP).write_text(digest + "\n")
    print(f"Installed {environment.folder.relative_to(ROOT)} in {time.monotonic() - began:.0f} s", flush=True)


def run(command: list[str]) -> None:
    """Run one step of an installation in the repository's root; exits with a sentence where it fails."""
    outcome = subprocess.run(command, cwd=ROOT, env=clean_environment(), check=False)
    if outcome.returncode:
        sys.exit(f"The installation stopped at: {' '.join(command)}\nThe reason is said above; run the same make target again to continue.")


def main(names: list[str]) -> None:
    """Make the named environments, or both."""
    unknown = sorted(set(names) - set(ENVIRONMENTS))
    if unknown:
        sys.exit(f"Unknown environment {', '.join(unknown)}; known: {', '.join(ENVIRONMENTS)}")
    for name in names or ENVIRONMENTS:
        make(ENVIRONMENTS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
