"""Token ids straight from the text of a JSON line, without an object for each: a corpus has tens of millions of them.

This is for lines that draftmill itself has written (`Prompt.to_line`, `Response.to_line`): the list of ids is flat, without blanks, and
its name stands in no other place. A quotation mark inside a JSON string is escaped, so no text can look like the name.
"""

from __future__ import annotations

from array import array

import orjson

from draftmill.generation.response import CHECK_PREFIX, Response, seal_holds
from draftmill.generation.rows import Row, read_row

_OUTPUT_IDS = b'"output_ids":['
_INPUT_IDS = b'"input_ids":['


def prompt_ids(line: bytes) -> array[int]:
    """The `input_ids` of a line of a prompts file, as 64-bit integers. ValueError or KeyError where it has none."""
    start = line.find(_INPUT_IDS)
    if start < 0:
        return array("q", orjson.loads(line)["input_ids"])
    start += len(_INPUT_IDS)
    return _numbers(line[start : line.index(b"]", start)])


def read_row_of_arrays(line: bytes) -> Row:
    """As `read_row`, with the `output_ids` of today's layout as an array of 64-bit integers. Raises Unreadable."""
    start = line.rfind(_OUTPUT_IDS) if line.startswith(CHECK_PREFIX) and seal_holds(line) else -1
    if start < 0:
        return read_row(line)
    rest = orjson.loads(line[: start - 1] + b"}")
    del rest["check"]
    return Row(Response(**rest, output_ids=_numbers(line[start + len(_OUTPUT_IDS) : line.index(b"]", start)])))


def _numbers(text: bytes) -> array[int]:
    """The integers of a comma-separated list. What is none ends the list: whoever knows the count or the hash of the ids will see it."""
    import numpy as np

    return array("q", np.fromstring(text, np.int64, sep=",").tobytes() if text else b"")
