"""Which records make the corpus, and in which order.

One pass over the heads of all records fills a table of 42 bytes a row; the rows themselves stay on disk. The order is that of a
keyed hash of the id, so it depends on the seed and on nothing else: more responses never reshuffle those that were there.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.corpus.record import Head
from draftmill.corpus.records import RecordsReader
from draftmill.corpus.records_meta import RecordsMeta, is_whole
from draftmill.errors import PermanentError
from draftmill.prompts.prompt import order_key
from draftmill.prompts.split import is_held_out
from draftmill.spec.policy import CorpusPolicy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.void]
    """One entry a record, with the fields of _COLUMNS."""

TRAIN, HELD_OUT, TOO_LONG, NOT_SAMPLED, DOUBLED_ID = range(5)
FATES = ("train", "held_out", "too_long", "not_sampled", "doubled_id")
"""What becomes of a record. `not_sampled`: left out by its data set's weight. `doubled_id`: an earlier data set has the same prompt."""


@dataclass(frozen=True)
class Source:
    """The records of one data set, and what they are."""

    path: Path
    meta: RecordsMeta

    @property
    def name(self) -> str:
        """The data set."""
        return self.meta.dataset


_COLUMNS = {
    "key": "Q",
    "source": "H",
    "head_offset": "Q",
    "head_size": "I",
    "first_id": "Q",
    "prompt_tokens": "I",
    "completion_tokens": "I",
    "truncated": "B",
    "fate": "B",
}


class Selector:
    """Fills the table, one data set after the other."""

    def __init__(self, policy: CorpusPolicy, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}

    def read(self, number: int, source: Source) -> None:
        """Add the rows of source `number`. PermanentError where its files are not those that its meta describes."""
        if not is_whole(source.path, source.meta):
            raise PermanentError(f"{source.path}: its records are not what was written; tokenize {source.name} again")
        weight = self.policy.weights.get(source.name, 1.0)
        first_id = 0
        with RecordsReader(source.path) as reader:
            for offset, size, head in reader.heads():
                self._add(
                    key=int(order_key(self.seed, f"shuffle {head.id}"), 16),
                    source=number,
                    head_offset=offset,
                    head_size=size,
                    first_id=first_id,
                    prompt_tokens=head.prompt_tokens,
                    completion_tokens=head.completion_tokens,
                    truncated=head.finish_reason == "length",
                    fate=self._fate(head, weight),
                )
                first_id += head.tokens

    def _add(self, **values: int) -> None:
        for name, value in values.items():
            self._columns[name].append(value)

    def _fate(self, head: Head, weight: float) -> int:
        if self.policy.max_length is not None and head.tokens > self.policy.max_length:
            return TOO_LONG
        if weight < 1 and int(order_key(self.seed, f"weight {head.id}"), 16) >= weight * 2**64:
            return NOT_SAMPLED
        if is_held_out(head.conversation or head.id, self.seed, self.policy.held_out_fraction):
            return HELD_OUT
        return TRAIN

    def table(self) -> Table:
        """One entry a record, sorted into the order of the corpus; of records with one id only the first source's is taken."""
        import numpy as np

        table = np.empty(len(self._columns["key"]), dtype=list(_COLUMNS.items()))
        for name, column in self._columns.items():
            table[name] = column
        table = table[np.lexsort([table[name] for name in ("first_id", "source", "key")])]
        # Equal 64-bit keys of different ids are as good as impossible (2e-9 at a hundred thousand rows).
        doubled = np.zeros(len(table), bool)
        doubled[1:] = table["key"][1:] == table["key"][:-1]
        table["fate"][doubled & (table["fate"] != TOO_LONG)] = DOUBLED_ID
        return table
