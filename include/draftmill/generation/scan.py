"""What a journal file holds: totals, ids with their places, answer lengths, and the damage in it. Reads, and changes nothing.

Speed: rows of today's layout carry a check at a fixed place, and id, counts and finish reason right after it. So a block of lines is
verified and indexed by a handful of operations on lists, without parsing any JSON. A block that holds anything else (older layouts,
damage, ids of another form) is read line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from draftmill.generation.ids import IdIndex, id_number
from draftmill.generation.response import CHECK_PREFIX, CHECKED_FROM
from draftmill.generation.rows import Row, Unreadable, read_row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Column = npt.NDArray[np.int64]

BLOCK_BYTES = 1 << 20


def _field(start: int, length: int) -> itemgetter[slice]:
    return itemgetter(slice(start, start + length))


_ID_AT = CHECKED_FROM + len(b'"id":"')
_PROMPT_NAME = b'","prompt_tokens":'
_PROMPT_AT = _ID_AT + 32 + len(_PROMPT_NAME)
_COMPLETION_AT = _PROMPT_AT + 8 + len(b',"completion_tokens":')
_FINISH_AT = _COMPLETION_AT + 8 + len(b',"finish_reason":"')
_START = _field(0, len(CHECK_PREFIX))
_CHECK = _field(len(CHECK_PREFIX), 16)
_CHECKED = itemgetter(slice(CHECKED_FROM, None))
_ID = _field(_ID_AT, 32)
_AFTER_ID = _field(_ID_AT + 32, len(_PROMPT_NAME))
_PROMPT = _field(_PROMPT_AT, 8)
_COMPLETION = _field(_COMPLETION_AT, 8)
_FINISH = _field(_FINISH_AT, 1)


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
        stream = path.open("rb", buffering=BLOCK_BYTES)
    except FileNotFoundError:
        return index
    with stream:
        while lines := stream.readlines(BLOCK_BYTES):
            if not lines[-1].endswith(b"\n"):
                index.torn = Damage(index.size + sum(map(len, lines[:-1])), len(lines[-1]), "not a whole line")
                lines.pop()
            ends = list(accumulate(map(len, lines), initial=index.size))
            columns.add(_fast(lines, ends) or _slow(lines, ends, index))
            index.size = ends[-1]
    _fill(index, columns)
    return index


def _fast(lines: list[bytes], ends: list[int]) -> Block | None:
    """The block where every line is a sound row of today's layout; None otherwise."""
    import numpy as np

    rows = len(lines)
    if b"".join(map(_START, lines)) != CHECK_PREFIX * rows or b"".join(map(_AFTER_ID, lines)) != _PROMPT_NAME * rows:
        return None
    try:
        checks = bytes.fromhex(b"".join(map(_CHECK, lines)).decode())
        if checks != b"".join(map(xxhash.xxh3_64_digest, map(_CHECKED, lines))):
            return None
        ids = bytes.fromhex(b"".join(map(_ID, lines)).decode())
        if len(ids) != 16 * rows:
            return None
        prompts = np.fromiter(map(int, map(_PROMPT, lines)), np.int64, rows)
        completions = np.fromiter(map(int, map(_COMPLETION, lines)), np.int64, rows)
    except ValueError:
        return None
    stops = np.frombuffer(b"".join(map(_FINISH, lines)), np.uint8) == ord("s")
    return Block(_words(ids), np.array(ends[:-1], np.int64), prompts, completions, stops)


def _words(ids: bytes) -> npt.NDArray[np.uint64]:
    import numpy as np

    return np.frombuffer(ids, ">u8").astype(np.uint64).reshape(-1, 2)


def _slow(lines: list[bytes], ends: list[int], index: JournalIndex) -> Block:
    """The block line by line; damage goes to `index.unreadable`."""
    import numpy as np

    rows: list[Row] = []
    places: list[int] = []
    for line, start in zip(lines, ends, strict=False):
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
