from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.jobs.logtail import OUTRUN_BYTES, LogPiece, fold, read_piece, whole_characters

LINES = st.lists(st.binary(max_size=60), max_size=40).map(b"\n".join)
CHUNKS = st.lists(st.integers(1, 300), max_size=30)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.1"


def read_all(path: Path, offset: int = 0, max_bytes: int = 65536, over: bool = True) -> list[LogPiece]:
    """All pieces from `offset` on. Each must advance while there is more."""
    pieces = [read_piece(path, offset, max_bytes, over)]
    while pieces[-1].more:
        pieces.append(read_piece(path, pieces[-1].offset, max_bytes, over))
        assert pieces[-1].offset > pieces[-2].offset
    return pieces


def text_of(pieces: list[LogPiece]) -> str:
    return "".join(piece.text for piece in pieces)


@settings(max_examples=200)
@given(data=LINES, chunks=CHUNKS, max_bytes=st.integers(130, 400))
def test_pieces_of_a_growing_log_are_the_whole_log(log: Path, data: bytes, chunks: list[int], max_bytes: int) -> None:
    """Any bytes, written in any portions, read in any portions: nothing is lost, doubled, or decoded in another way."""
    log.write_bytes(b"")
    text, offset, written = "", 0, 0
    for size in chunks:
        with log.open("ab") as stream:
            written += stream.write(data[written : written + size])
        piece = read_piece(log, offset, max_bytes, over=False)
        assert piece.skipped == 0
        assert piece.text.endswith("\n") or not piece.text
        text, offset = text + piece.text, piece.offset
    log.write_bytes(data)
    pieces = read_all(log, offset, max_bytes)
    assert text + text_of(pieces) == fold(data.decode(errors="replace"))
    assert pieces[-1].offset == len(data)


@settings(max_examples=200)
@given(data=st.text(max_size=2000), max_bytes=st.integers(8, 200))
def test_no_character_is_ever_split(log: Path, data: str, max_bytes: int) -> None:
    """Lines of any length: what comes out of a valid log holds no replacement that was not in it."""
    log.write_bytes(data.replace("�", "").encode())
    assert "�" not in text_of(read_all(log, 0, max_bytes))


@settings(max_examples=200)
@given(data=st.binary(max_size=3000), start=st.integers(0, 3500), max_bytes=st.integers(8, 100))
def test_any_offset_into_any_bytes_leads_to_the_end(log: Path, data: bytes, start: int, max_bytes: int) -> None:
    log.write_bytes(data)
    pieces = read_all(log, start, max_bytes)
    assert pieces[-1].offset == len(data)
    assert sum(piece.skipped for piece in pieces) <= len(data)


def test_a_line_without_end_is_kept_back_until_the_job_is_over(log: Path) -> None:
    log.write_bytes(b"whole\nhal")
    assert read_piece(log, 0, 100, over=False) == LogPiece("whole\n", 6)
    assert read_piece(log, 6, 100, over=False) == LogPiece("", 6)
    assert read_piece(log, 6, 100, over=True) == LogPiece("hal", 9)


def test_a_long_line_is_cut_visibly_and_its_rest_counted(log: Path) -> None:
    log.write_bytes(b"before\n" + b"x" * (2 << 20) + b"\nafter\n")
    pieces = read_all(log, 0, 65536)
    text = text_of(pieces)
    assert text == "before\n" + "x" * 65536 + " [the line is cut here: it is longer than 65536 bytes]\nafter\n"
    assert sum(piece.skipped for piece in pieces) == (2 << 20) - 65536 + 1


def test_a_long_line_that_is_still_growing_is_skipped_to_its_end(log: Path) -> None:
    log.write_bytes(b"x" * 300)
    cut = read_piece(log, 0, 100, over=False)
    assert "cut here" in cut.text
    rest = read_piece(log, cut.offset, 100, over=False)
    assert rest == LogPiece("", 300, skipped=200)
    with log.open("ab") as stream:
        stream.write(b"yy\nnext\n")
    assert read_piece(log, rest.offset, 100, over=False) == LogPiece("next\n", 308, skipped=3)


def test_a_progress_bar_is_folded_to_its_last_state(log: Path) -> None:
    bar = "".join(f"\r{'█' * step}{'░' * (10 - step)} {step * 10}%" for step in range(11))
    log.write_bytes(f"start\n{bar}\nend\r\n".encode())
    assert read_piece(log, 0, 65536, over=False).text == f"start\n{'█' * 10} 100%\nend\n"


def test_a_bar_without_end_shows_now_and_then(log: Path) -> None:
    states = [f"\r{'█' * (step % 20)} {step}" for step in range(1000)]
    log.write_bytes("".join(states).encode())
    pieces = read_all(log, 0, 4096, over=False)
    lines = text_of(pieces).splitlines()
    assert 2 <= len(lines) <= 12
    assert all("�" not in line and line.split()[-1].isdigit() for line in lines)
    assert [int(line.split()[-1]) for line in lines] == sorted(int(line.split()[-1]) for line in lines)
    assert text_of(read_all(log, pieces[-1].offset, 4096, over=True)).splitlines()[-1].split()[-1] == "999"


def test_an_asker_far_behind_gets_the_end(log: Path) -> None:
    log.write_bytes(b"".join(b"line %07d\n" % number for number in range(1_000_000)))
    piece = read_piece(log, 0, 65536, over=True)
    assert piece.skipped > OUTRUN_BYTES
    assert piece.text.startswith("line ")
    rest = read_all(log, piece.offset)
    assert (piece.text + text_of(rest)).endswith("line 0999999\n")


def test_an_offset_beyond_the_end_starts_over(log: Path) -> None:
    log.write_bytes(b"short\n")
    assert read_piece(log, 500, 100, over=False) == LogPiece("short\n", 6)


def test_an_absent_log_is_empty(tmp_path: Path) -> None:
    assert read_piece(tmp_path / "log.9", 77, 100, over=True) == LogPiece("", 0)


@pytest.mark.parametrize(
    ("block", "whole"),
    [
        (b"abc", 3),
        ("aé".encode()[:-1], 1),
        ("a€".encode()[:-1], 1),
        ("a€".encode()[:-2], 1),
        ("a😀".encode()[:-1], 1),
        ("a😀".encode()[:-3], 1),
        ("a😀".encode(), 5),
        (b"a\x80\x80\x80\x80\x80", 6),
        (b"a\xff", 1),
        (b"", 0),
    ],
)
def test_whole_characters(block: bytes, whole: int) -> None:
    assert whole_characters(block) == whole
