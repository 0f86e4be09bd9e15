"""A training row, and the line of JSON that trainers read.

```
{"id":...,"dataset":...,"conversation":...,"turn":0,"prompt_tokens":3,"completion_tokens":2,"finish_reason":"stop",
 "input_ids":[1,2,3,4,5],"loss_mask":[0,0,0,1,1]}
```

Trainers read `input_ids` and `loss_mask`; the fields before them say where a row comes from. `input_ids` are exactly what was sent and
what came back. The mask is not shifted: position i says whether token i was generated. A trainer shifts for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Head:
    """Where a row comes from. Its `prompt_tokens` have loss 0, the `completion_tokens` after them loss 1."""

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
        """The fields in their order in a line."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Row:
    """A head with its token ids, shape [head.tokens]."""

    head: Head
    ids: Ids

    @property
    def prompt_ids(self) -> Ids:
        """What was sent, shape [prompt_tokens]."""
        return self.ids[: self.head.prompt_tokens]

    @property
    def output_ids(self) -> Ids:
        """What came back, shape [completion_tokens]."""
        return self.ids[self.head.prompt_tokens :]

    def line(self) -> tuple[bytes, ...]:
        """The row as one JSON line, in pieces that nobody has to copy together before they are written.

        A row has at least one completion token, which ends its mask.
        """
        return (
            orjson.dumps(self.head.to_json())[:-1],
            b',"input_ids":',
            orjson.dumps(self.ids, option=orjson.OPT_SERIALIZE_NUMPY),
            b',"loss_mask":[',
            b"0," * self.head.prompt_tokens,
            b"1," * (self.head.completion_tokens - 1),
            b"1]}\n",
        )
