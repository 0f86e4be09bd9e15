from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from draftmill.jobs.progress import LastProgress, LogProgress, Tee, TerminalProgress


def test_numbers_are_logged_at_most_every_so_often_and_events_always() -> None:
    stream = io.StringIO()
    log = LogProgress(stream, every_s=60)
    for tokens in range(100):
        log(f"{tokens} tokens", tokens=tokens)
    log("draining")
    assert [line.split(" ", 2)[2] for line in stream.getvalue().splitlines()] == ["0 tokens", "draining"]


def test_numbers_are_logged_again_when_due() -> None:
    stream = io.StringIO()
    log = LogProgress(stream, every_s=0)
    log("1 token", tokens=1)
    log("2 tokens", tokens=2)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d tokens?", line) for line in lines)


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    stream = Path("/dev/full").open("w")  # noqa: SIM115 - closing it raises what this test is about
    LogProgress(stream)("a line")
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_bar_shows_tokens_of_the_budget() -> None:
    stream = io.StringIO()
    bar = TerminalProgress(stream, "alpha", 1000)
    bar("loading the tokenizer")
    bar("half", tokens=500, tokens_per_s=1234.0, in_flight=7, errors=0)
    bar("beyond", tokens=1003)
    bar.close()
    text = stream.getvalue()
    assert "loading the tokenizer\n" in text
    assert "50%" in text
    assert "500/1.00k tokens" in text
    assert "1,234 tokens/s, 7 in flight" in text
    assert "errors" not in text
    assert "100%" in text


def test_every_sink_gets_it_and_the_last_is_kept() -> None:
    first, second = LastProgress(), LastProgress()
    Tee(first, second)("one", tokens=1)
    Tee(first)("two", tokens=2)
    assert first.value is not None
    assert second.value is not None
    assert (first.value["message"], first.value["tokens"]) == ("two", 2)
    assert second.value["message"] == "one"
    assert abs(first.value["at"] - time.time()) < 5
