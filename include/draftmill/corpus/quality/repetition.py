"""Degenerate loops: an answer that says the same few phrases over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmill.corpus.quality.phrases import PHRASE, phrase_count, phrases_at

if TYPE_CHECKING:
    from draftmill.corpus.quality.phrases import Quads

WINDOW = 1024
"""Tokens looked at together: a loop is found, wherever in the answer, when it fills such a window; one of twice the length always does."""

SHORTEST = 128
"""Shorter answers are not judged."""

DISTINCT = 0.2
"""A window is degenerate when fewer of its phrases than this are different: each then stands there five times on average."""

_PROBES = (0.25, 0.5, 0.75)
_OFTEN = 4


def is_degenerate(quads: Quads) -> bool:
    """Whether some window of the answer (the whole answer, where it is shorter) consists of few phrases.

    quads: the answer's `quad_hashes`. Phrases are counted only in windows where one of three probes, at fixed places, stands there four
    times or more: in a loop nearly all do, in other text hardly any.
    """
    import numpy as np

    if phrase_count(quads) < SHORTEST - PHRASE + 1:
        return False
    windows = max(1, phrase_count(quads) // WINDOW)
    width = phrase_count(quads) // windows
    block = quads[: windows * width].reshape(windows, width)
    for probe in _PROBES:
        same = block == block[:, int(probe * width), None]
        # Every probe stands in its own window once. Counting by window costs ten times as much as counting all.
        if int(np.count_nonzero(same)) < windows + _OFTEN - 1:
            continue
        often = same.sum(axis=1) >= _OFTEN
        if any(_consists_of_few(quads, window * width, width) for window in often.nonzero()[0].tolist()):
            return True
    return False


def _consists_of_few(quads: Quads, start: int, width: int) -> bool:
    import numpy as np

    phrases = phrases_at(quads, np.arange(start, start + width))
    return len(np.unique(phrases)) < DISTINCT * width
