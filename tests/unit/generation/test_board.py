"""The board: what jobs of one server tell each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from draftmill.generation.board import STALE_S, Board
from draftmill.generation.forecast import Forecast


def forecast(at: float = 100.0, peak: float = 500.0) -> Forecast:
    return Forecast(at, 20.0, True, [0.0, 100.0, 200.0], [100.0, peak, 0.0], [1.0, 2.0, 3.0])


def test_a_job_sees_the_others_and_not_itself(tmp_path: Path) -> None:
    one, two = Board(tmp_path, "c.one"), Board(tmp_path, "c.two")
    one.publish(forecast())
    two.publish(forecast(peak=700.0))
    assert one.others(101.0) == [forecast(peak=700.0)]
    assert two.others(101.0) == [forecast()]
    one.publish(forecast(at=102.0, peak=800.0))
    assert two.others(102.0) == [forecast(at=102.0, peak=800.0)]
    one.withdraw()
    one.withdraw()
    assert two.others(102.0) == []


def test_who_says_nothing_is_gone_and_so_is_what_was_said_before_the_machine_was_started(tmp_path: Path) -> None:
    Board(tmp_path, "killed").publish(forecast(at=100.0))
    board = Board(tmp_path, "other")
    assert board.others(100.0 + STALE_S)
    assert not board.others(100.1 + STALE_S)
    assert not board.others(5.0)


ODD = b'{"at":%s,"rate":1,"wants":true,"ahead":[0],"use":%s,"variance":[0]}'


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"at": 1}', ODD % (b"1", b"[]"), ODD % (b'"x"', b"[0]"), b"\xff"])
def test_what_cannot_be_understood_is_passed_over(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "strange.json").write_bytes(text)
    (tmp_path / "notes.txt").write_bytes(b"hello")
    board = Board(tmp_path, "own")
    assert board.others(1.0) == []
    Board(tmp_path, "other").publish(forecast(at=1.0))
    assert len(board.others(1.0)) == 1


def test_a_board_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    board = Board(in_the_way, "own")
    board.publish(forecast())
    assert board.others(100.0) == []
    board.withdraw()


def test_a_forecast_moves_with_time_at_the_rate_of_its_requests() -> None:
    ahead = np.array([0.0, 50.0, 1_000.0])
    use, variance = forecast().seen(102.5, ahead)  # 50 tokens later
    assert use.tolist() == [300.0, 500.0, 0.0]
    assert variance.tolist() == [1.5, 2.0, 3.0]
    assert forecast().held(105.0) == forecast().peak == 500.0


def test_files_are_small_and_nothing_is_left_behind(tmp_path: Path) -> None:
    board = Board(tmp_path, "own")
    many = dataclasses.replace(forecast(), ahead=[1.0 * n for n in range(15)], use=[1e6 / 3] * 15, variance=[1e12 / 7] * 15)
    board.publish(many)
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]
    assert (tmp_path / "own.json").stat().st_size < 1_500
