"""A training row as a line of JSON, and back.

The trainers read `input_ids` and `loss_mask`; the fields before them say where a row comes from. They come first and the two lists last,
so that the head of a line can be read without parsing thousands of integers. A row is exactly what was sent and what came back:

```
{"id":...,"dataset":...,"conversation":...,"turn":0,"prompt_tokens":3,"completion_tokens":2,"finish_reason":"stop",
 "input_ids":[1,2,3,4,5],"loss_mask":[0,0,0,1,1]}
```

The mask is not shifted: position i of the mask says whether token i was generated. A trainer shifts for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int32]

_IDS = b',"input_ids":['
_MASK = b'],"loss_mask":['
_END = b"]}\n"


class DamagedRecord(ValueError):
    """A line that is not a record as `Record.encode` writes it."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a row comes from. `prompt_tokens` have loss 0, the `completion_tokens` after them loss 1."""

    id: str
    dataset: str
    conversation: str
    turn: int
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str

    @property
    def tokens(self) -> int:
        """Length of the row."""
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        """The fields in their order in the line."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def mask_text(zeros: int, ones: int) -> bytes:
    """The inside of a JSON list of `zeros` zeros and then `ones` ones."""
    return (b"0," * zeros + b"1," * ones)[:-1]


def encode(head: Head, input_ids: Ids) -> bytes:
    """The row as one JSON line. `input_ids` has shape [head.tokens]."""
    ids = orjson.dumps(input_ids, option=orjson.OPT_SERIALIZE_NUMPY)
    front = orjson.dumps(head.to_json())[:-1]
    return b"".join((front, _IDS[:-1], ids[:-1], _MASK, mask_text(head.prompt_tokens, head.completion_tokens), _END))


def parse_head(line: bytes) -> Head:
    """The head of a line, without reading its lists. Raises DamagedRecord."""
    end = line.find(_IDS)
    try:
        return Head(**orjson.loads(line[:end] + b"}"))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise DamagedRecord(f"the head of a row cannot be read: {error}") from None


def parse_ids(line: bytes, head: Head) -> Ids:
    """Token ids of a line, shape [head.tokens]; raises DamagedRecord where ids or mask are not what the head announces."""
    import numpy as np

    start = line.find(_IDS) + len(_IDS)
    middle = line.find(_MASK, start)
    text = line[start:middle]
    if line[middle + len(_MASK) :] != mask_text(head.prompt_tokens, head.completion_tokens) + _END:
        raise DamagedRecord(f"row {head.id}: the loss mask is not {head.prompt_tokens} zeros and {head.completion_tokens} ones")
    ids = np.fromstring(text, dtype=np.int32, sep=",")
    # fromstring stops at what it does not understand: the count of separators is the independent witness.
    if not len(ids) == text.count(b",") + 1 == head.tokens:
        raise DamagedRecord(f"row {head.id}: input_ids are not {head.tokens} token ids")
    return ids
