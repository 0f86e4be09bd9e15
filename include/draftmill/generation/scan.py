"""What a journal file holds: totals, ids with their places, answer lengths, and the damage in it. Reads, and changes nothing.

Speed: rows of today's layout carry a check at a fixed place, and id, counts and finish reason right after it. So a block of lines is
verified and indexed by a handful of array operations, without parsing any JSON, and without copying more of a line than its head:
the file goes through one buffer that stays in the processor's cache. A block that holds anything else (older layouts, damage, ids of
another form) is read line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import xxhash

from draftmill.generation.ids import IdIndex, id_number
from draftmill.generation.response import CHECK_PREFIX, CHECKED_FROM
from draftmill.generation.rows import Row, Unreadable, read_row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Column = npt.NDArray[np.int64] | npt.NDArray[np.int32]
    """Of counts: those in rows of today's layout have eight digits."""

BLOCK_BYTES = 1 << 21


_ID_AT = CHECKED_FROM + len(b'"id":"')
_PROMPT_NAME = b'","prompt_tokens":'
_PROMPT_AT = _ID_AT + 32 + len(_PROMPT_NAME)
_COMPLETION_AT = _PROMPT_AT + 8 + len(b',"completion_tokens":')
_FINISH_AT = _COMPLETION_AT + 8 + len(b',"finish_reason":"')
_HEAD = _FINISH_AT + 1
"""Bytes of a row from its beginning to its finish reason's first letter."""

_CHECK_AT = len(CHECK_PREFIX)
_CONSTANTS = ((0, CHECK_PREFIX), (_CHECK_AT + 16, b'",'), (_ID_AT + 32, _PROMPT_NAME))
"""What every row has, and where."""


def _empty() -> Column:
    import numpy as np

    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Damage:
    """A piece of the file that is no row: `start` and `length` in bytes, without a newline at its end."""

    start: int
    length: int
    reason: str


@dataclass(frozen=True)
class Block:
    """Columns of some rows: shape [rows], ids [rows, 2] as upper and lower 64 bits."""

    ids: npt.NDArray[np.uint64]
    places: Column
    prompt_tokens: Column
    completion_tokens: Column
    stops: npt.NDArray[np.bool_]


@dataclass
class JournalIndex:
    """What is in a journal.

    ids: every response once. lengths: completion tokens of each response, in file order.
    size: bytes of the file up to the end of its last whole line. torn: what follows it, or None.
    unreadable: whole lines that are no rows. older, doubled: rows of older layouts, and rows whose id had come before (not counted in
    anything else).
    """

    ids: IdIndex = field(default_factory=IdIndex)
    lengths: Column = field(default_factory=_empty)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    size: int = 0
    torn: Damage | None = None
    unreadable: list[Damage] = field(default_factory=list)
    older: int = 0
    doubled: int = 0

    @property
    def responses(self) -> int:
        """How many responses there are."""
        return len(self.lengths)


def scan(path: Path) -> JournalIndex:
    """Index the journal at `path`; an absent file is an empty journal."""
    index = JournalIndex()
    columns = _Columns()
    try:
        stream = path.open("rb", buffering=0)
    except FileNotFoundError:
        return index
    with stream:
        for block, ends in _blocks(stream):
            columns.add(_fast(block, ends, index.size) or _slow(block, ends, index))
            index.size += ends[-1]
        rest = stream.tell() - index.size
    if rest:
        index.torn = Damage(index.size, rest, "not a whole line")
    _fill(index, columns)
    return index


def _blocks(stream: IO[bytes]) -> Iterator[tuple[memoryview, list[int]]]:
    """The whole lines of the rest of a file, many at a time: the bytes, valid until the next ones are asked for, and where lines end in
    them, after a first 0. What follows the last newline is not among them."""
    buffer, held = bytearray(BLOCK_BYTES), 0
    while got := stream.readinto(memoryview(buffer)[held:]):  # type: ignore[attr-defined]  # IO has it where it is a file's
        ends, end = [0], held + got
        place = buffer.find(b"\n", held, end)
        while place >= 0:
            ends.append(place + 1)
            place = buffer.find(b"\n", place + 1, end)
        if len(ends) > 1:
            yield memoryview(buffer)[: ends[-1]], ends
        held = end - ends[-1]
        rest = buffer[ends[-1] : end]
        if held == len(buffer):
            buffer = bytearray(2 * held)  # a line longer than that
        buffer[:held] = rest


def _fast(block: memoryview, ends: list[int], place: int) -> Block | None:
    """The block, which begins at `place` in the file, where every line is a sound row of today's layout; None otherwise."""
    import numpy as np

    rows = len(ends) - 1
    heads = np.frombuffer(b"".join([block[start : start + _HEAD] for start in ends[:-1]]), np.uint8)
    if len(heads) != rows * _HEAD:
        return None
    heads = heads.reshape(rows, _HEAD)

    def field(at: int, length: int) -> bytes:
        return heads[:, at : at + length].tobytes()

    if any(field(at, len(constant)) != constant * rows for at, constant in _CONSTANTS):
        return None
    digests = map(xxhash.xxh3_64_digest, [block[start + CHECKED_FROM : end] for start, end in pairwise(ends)])
    # As text, not as numbers: whoever reads the row compares the text.
    if field(_CHECK_AT, 16) != b"".join(digests).hex().encode():
        return None
    prompts, completions = (_numbers(heads[:, at : at + 8]) for at in (_PROMPT_AT, _COMPLETION_AT))
    ids = _unhex(field(_ID_AT, 32))
    if prompts is None or completions is None or ids is None:
        return None
    return Block(_words(ids), np.array(ends[:-1], np.int64) + place, prompts, completions, heads[:, _FINISH_AT] == ord("s"))


def _numbers(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32] | None:
    """The numbers that these characters are, shape [rows, 8]: digits after blanks. None where one is anything else."""
    import numpy as np

    values = digits.astype(np.int32) - ord("0")
    blank = digits == ord(" ")
    values[blank] = 0
    if values.min() < 0 or values.max() > 9 or bool((blank[:, 1:] & ~blank[:, :-1]).any()):
        return None
    numbers: npt.NDArray[np.int32] = values @ 10 ** np.arange(7, -1, -1, dtype=np.int32)
    return numbers


def _unhex(text: bytes) -> bytes | None:
    """The bytes that these hex digits are; None where one is anything else."""
    try:
        found = bytes.fromhex(text.decode())
    except ValueError:
        return None
    return found if 2 * len(found) == len(text) else None  # blanks are passed over by fromhex


def _words(ids: bytes) -> npt.NDArray[np.uint64]:
    import numpy as np

    return np.frombuffer(ids, ">u8").astype(np.uint64).reshape(-1, 2)


def _slow(block: memoryview, ends: list[int], index: JournalIndex) -> Block:
    """The block, which begins at `index.size`, line by line; damage goes to `index.unreadable`."""
    import numpy as np

    rows: list[Row] = []
    places: list[int] = []
    for begin, end in pairwise(ends):
        line, start = bytes(block[begin:end]), index.size + begin
        if not line.strip():
            continue
        try:
            row = read_row(line)
        except Unreadable as error:
            index.unreadable.append(Damage(start, len(line) - 1, str(error)))
            continue
        if row.skipped:
            index.unreadable.append(Damage(start, row.skipped, "not a whole line"))
        index.older += row.older
        rows.append(row)
        places.append(start)
    ids = b"".join(id_number(row.response.id).to_bytes(16, "big") for row in rows)
    return Block(
        _words(ids),
        np.array(places, np.int64),
        np.array([row.response.prompt_tokens for row in rows], np.int64),
        np.array([row.response.completion_tokens for row in rows], np.int64),
        np.array([row.response.finish_reason == "stop" for row in rows], bool),
    )


class _Columns:
    """The columns of all blocks, each given away whole and only once, so that millions of rows are not held twice."""

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, block: Block) -> None:
        """Append a block."""
        columns = {name: getattr(block, name) for name in ("places", "prompt_tokens", "completion_tokens", "stops")}
        columns |= {"high": block.ids[:, 0].copy(), "low": block.ids[:, 1].copy()}
        for name, column in columns.items():
            self._parts.setdefault(name, []).append(column)

    def take(self, name: str) -> npt.NDArray[Any]:
        """The whole column; it is not kept here."""
        import numpy as np

        return np.concatenate(self._parts.pop(name))

    def __bool__(self) -> bool:
        return bool(self._parts)


def _fill(index: JournalIndex, columns: _Columns) -> None:
    import numpy as np

    if not columns:
        return
    again = index.ids.load(columns.take("high"), columns.take("low"), columns.take("places"))
    prompts, lengths, stops = columns.take("prompt_tokens"), columns.take("completion_tokens"), columns.take("stops")
    if again:
        prompts, lengths, stops = (np.delete(column, again) for column in (prompts, lengths, stops))
    index.lengths = lengths
    index.prompt_tokens, index.completion_tokens = int(prompts.sum()), int(lengths.sum())
    counts = {"stop": int(stops.sum()), "length": int((~stops).sum())}
    index.finish_reasons = Counter({reason: count for reason, count in counts.items() if count})
    index.doubled = len(again)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line of the file with the place it begins at; the last may lack its newline."""
    place = 0
    with path.open("rb", buffering=BLOCK_BYTES) as stream:
        for line in stream:
            yield place, line
            place += len(line)
