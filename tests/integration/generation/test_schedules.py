"""Random schedules of faults over a generation in its own process, against the simulated server in another.

A failing schedule is named by its seed, and `pytest -m endurance "PATH::test_any_schedule[SEED]"` plays it again. What goes wrong, and at
which row, follows from the seed; the moment within a row does not, because the processes are real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.generation.schedules import Schedule
from tests.integration.generation.stage import Stage

ALL = 200
SOME = 4


def play(folder: Path, seed: int) -> None:
    schedule = Schedule.draw(seed)
    stage = Stage(folder, schedule)
    try:
        stage.check(stage.play())
    except BaseException as problem:
        errors = folder / "err"
        said = errors.read_text(errors="replace")[-4_000:] if errors.exists() else ""
        problem.add_note(f"seed {seed}: {schedule}\nexit codes {stage.exits}, events {dict(stage.fired)}\nthe clients said:\n{said}")
        raise
    finally:
        stage.close()


@pytest.mark.parametrize("seed", range(SOME))
def test_some_schedules(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(ALL))
def test_any_schedule(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)
