"""Sources whose rows are one question each."""

from __future__ import annotations

from typing import ClassVar

from draftmill.sources.adapters.base import Adapter, Row
from draftmill.sources.chat import Conversation, user_message


class SinglePrompt(Adapter):
    """The first known column that holds something is the whole prompt."""

    def conversation(self, row: Row) -> Conversation:
        return Conversation([user_message(row[self.column(row)])])


class OpenCodeInstruct(SinglePrompt):
    """nvidia/OpenCodeInstruct: `input` is the task; `output`, `unit_tests` and scores are never read."""

    name: ClassVar[str] = "opencodeinstruct"
    mappings = ("input", "question", "prompt")
    question = "input"


class Magicoder(SinglePrompt):
    """OSS-Instruct (`problem`) and Evol-Instruct (`instruction`)."""

    name: ClassVar[str] = "magicoder"
    mappings = ("problem", "instruction")
    question = "problem"
