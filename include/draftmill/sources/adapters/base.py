"""What an adapter is: one schema, read row by row."""

from __future__ import annotations

from typing import Any, ClassVar

from draftmill.errors import PermanentError
from draftmill.sources.chat import Conversation, SkipRow
from draftmill.sources.tools import BrokenTools, definitions

Row = dict[str, Any]


class Adapter:
    """Makes a conversation of a row.

    mappings: the columns that may hold the conversation, best first; a row that has none of them is not of this schema.
    optional: further columns that are used where they are there.
    agent: rows are agents' trajectories, whose recorded answers may stand as history (`turns: last`).
    question: a column whose text, where it holds any, is the whole conversation: one user message. Sources of millions of rows are read
        by it in a shorter way, which must give what `conversation` gives.
    """

    name: ClassVar[str]
    mappings: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    agent: bool = False
    question: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns worth reading."""
        return (*self.mappings, *self.optional)

    def conversation(self, row: Row) -> Conversation:
        """The row's conversation. Raises SkipRow; any JSON value in any column is either used or skipped."""
        raise NotImplementedError

    def column(self, row: Row) -> str:
        """The best column of the row that holds something. SkipRow(`unknown_columns`) where it has none of the known ones."""
        for name in self.mappings:
            if row.get(name):
                return name
        for name in self.mappings:
            if name in row:
                return name
        raise SkipRow("unknown_columns")

    def check_columns(self, found: list[str], where: str) -> None:
        """PermanentError where `found`, the columns of `where`, hold no conversation of this schema."""
        if not any(name in found for name in self.mappings):
            further = f" (and may use {', '.join(self.optional)})" if self.optional else ""
            raise PermanentError(
                f"{where}: adapter {self.name} expects one of the columns {', '.join(self.mappings)}{further}, "
                f"but found {', '.join(sorted(found)) or 'none'}; "
                "choose another adapter, or name the columns with adapter generic (docs/add-a-dataset.md)"
            )


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """Function definitions of a column; SkipRow(`broken_tools`) where it holds something else."""
    try:
        return definitions(value)
    except BrokenTools:
        raise SkipRow("broken_tools") from None
