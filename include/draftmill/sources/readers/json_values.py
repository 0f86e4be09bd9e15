"""A JSON array (or JSON values one after another) read value by value, in memory proportional to the largest value."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import IO, Any

from draftmill.sources.readers.files import open_text, reading
from draftmill.sources.readers.json_lines import DAMAGED

_PIECE = 1 << 20
_SEPARATORS = re.compile(r"[\s,]*")
_NEAR_END = 16
"""A fault this close to the end of what has been read may be a value cut in two: `tru`, `\\u12`, `1.`."""
_LARGEST_VALUE = 512 << 20
"""Characters after which an unfinished value counts as damaged, so that one missing quote never takes all memory."""
_UNFINISHED = object()


def read_values(path: str) -> Iterator[Any]:
    """The elements of a JSON array, or of several, or the values that stand one after another. An element may be an array itself.

    What cannot be parsed comes as DAMAGED, once, and reading goes on at the next object that begins like the last good one.
    """
    with reading(path), open_text(path) as stream:
        yield from _Values(stream)


class _Values:
    """A window of text that moves over the stream, and grows while a value is longer than it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._position = 0
        self._ended = False
        self._inside = False
        self._opening = re.compile(r"\{")

    def __iter__(self) -> Iterator[Any]:
        while self._find_value():
            value = self._read_value()
            if value is not _UNFINISHED:
                yield value

    def _more(self) -> None:
        """Double the window, so that a long value is scanned only as often as its length doubles."""
        self._text = self._text[self._position :]
        self._position = 0
        piece = self._stream.read(max(_PIECE, len(self._text)))
        self._ended = not piece
        self._text += self._decode(piece, final=not piece)

    def _find_value(self) -> bool:
        """Go to where the next value begins: behind the bracket that opens an array, unless one is open, or that closes it."""
        while True:
            match = _SEPARATORS.match(self._text, self._position)
            self._position = match.end() if match else self._position
            if self._position < len(self._text):
                if self._text[self._position] != ("]" if self._inside else "["):
                    return True
                self._inside = not self._inside
                self._position += 1
            elif self._ended:
                return False
            else:
                self._more()

    def _read_value(self) -> Any:
        try:
            value, end = self._scan(self._text, self._position)
        except JSONDecodeError as fault:
            if self._may_be_cut(fault):
                self._more()
                return _UNFINISHED
            return self._skip_damaged(fault.pos)
        except RecursionError:
            return self._skip_damaged(self._position)
        if end > len(self._text) - _NEAR_END and not self._ended and not isinstance(value, dict | list):
            # A number may go on: `1` of `1.5e10`.
            self._more()
            return _UNFINISHED
        if isinstance(value, dict) and value:
            self._opening = re.compile(r"\{\s*" + re.escape(json.dumps(next(iter(value)), ensure_ascii=False)))
        self._position = end
        return value

    def _may_be_cut(self, fault: JSONDecodeError) -> bool:
        if self._ended or len(self._text) - self._position > _LARGEST_VALUE:
            return False
        return fault.msg.startswith("Unterminated string") or fault.pos >= len(self._text) - _NEAR_END

    def _skip_damaged(self, fault: int) -> Any:
        self._position = max(fault, self._position + 1)
        while not (match := self._opening.search(self._text, self._position)):
            if self._ended:
                self._position = len(self._text)
                return DAMAGED
            self._position = max(self._position, len(self._text) - _NEAR_END)
            self._more()
        self._position = match.start()
        return DAMAGED
