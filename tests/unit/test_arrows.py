"""Imports point one way, as the design draws them; read from the source, late imports inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "include"
BASE = {"errors", "files", "layout", "__init__"}
LOWER = BASE | {"spec", "jobs", "sources"}
PEERS = {"generation", "serving", "corpus", "prompts"}
ALLOWED: dict[str, set[str]] = {
    "spec": BASE | {"spec"},
    "jobs": BASE | {"spec", "jobs"},
    "sources": BASE | {"spec", "sources"},
    **dict.fromkeys(PEERS, LOWER | PEERS),
    "simulator": LOWER | PEERS | {"simulator"},
    "cli": LOWER | PEERS | {"simulator"},
    "__main__": {"cli"},
    **dict.fromkeys(BASE, BASE),
}
"""For each room of draftmill, the rooms it may import. Nothing but the command line knows the simulator."""


def imports(path: Path) -> Iterator[str]:
    """Absolute names of all modules that `path` imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            yield node.module or ""


FILES = sorted((INCLUDE / "draftmill").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(INCLUDE)))
def test_arrows_point_one_way(path: Path) -> None:
    room = path.relative_to(INCLUDE / "draftmill").parts[0].removesuffix(".py")
    for name in imports(path):
        top, _, rest = name.partition(".")
        assert top not in {"airflow", "draftmill_airflow"}, f"{path} imports {name}, which hosts do not have"
        if top == "draftmill" and rest:
            assert rest.split(".")[0] in ALLOWED[room], f"{path} imports {name}: {room} must not know it"


@pytest.mark.parametrize("path", sorted((INCLUDE / "draftmill_airflow").rglob("*.py")), ids=lambda path: path.name)
def test_the_airflow_side_is_thin(path: Path) -> None:
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "draftmill" and rest:
            assert rest.split(".")[0] in BASE | {"spec", "jobs"}, f"{path} imports {name}: work belongs on the host"
