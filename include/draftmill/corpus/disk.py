"""A full disk is a temporary failure with a sentence, wherever it strikes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from draftmill.errors import TemporaryError
from draftmill.files import NO_SPACE


@contextlib.contextmanager
def room_needed(folder: Path, what: str) -> Iterator[None]:
    """Turn "no space left", "quota exceeded" and "file too large" into a TemporaryError that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise TemporaryError(
            f"{what}: the disk below {folder} is full ({error.strerror}); free space and try again, what stood there before is unchanged"
        ) from error
