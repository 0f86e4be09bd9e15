"""Benchmarks: each module here whose name has no leading underscore measures something in `run() -> dict[str, float]`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_INCLUDE = str(ROOT / "include")
if _INCLUDE not in sys.path:
    sys.path.insert(0, _INCLUDE)
