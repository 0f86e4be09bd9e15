"""Answers with U+FFFD, the replacement character: bytes that are no text, or text that was broken before the model learned it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmill.corpus.decoder import Decode

if TYPE_CHECKING:
    from draftmill.corpus.quality.doubts import Answer

REPLACEMENT = "\ufffd"


class ReplacementCharacters:
    """Finds answers that decode to text with replacement characters.

    A token is decoded by itself once, when it is first seen. Only answers with a token that is no whole text by itself are decoded:
    most such tokens are parts of one character and make sense together.
    """

    def __init__(self, decode: Decode, vocab_size: int) -> None:
        import numpy as np

        self.decode = decode
        self._known = np.zeros(vocab_size, dtype=np.bool_)
        self._partial = np.zeros(vocab_size, dtype=np.bool_)

    def __call__(self, answer: Answer) -> bool:
        """Whether the answer has one. A character that the length limit cut in half does not count: it was right as far as it came."""
        ids = answer.row.output_ids
        fresh = set(ids[~self._known[ids]].tolist())
        for token in fresh:
            self._partial[token] = REPLACEMENT in self.decode([token])
            self._known[token] = True
        if not self._partial[ids].any():
            return False
        text = self.decode(ids.tolist())
        if answer.row.head.finish_reason == "length" and self._partial[ids[-1]]:
            text = text.removesuffix(REPLACEMENT)
        return REPLACEMENT in text
