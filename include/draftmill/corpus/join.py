"""A response joined to its prompt, and the reasons for which a response cannot become a training row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmill.corpus.prompt_index import PromptIndex
from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.corpus.record import Head
from draftmill.generation.response import Response
from draftmill.prompts.prompt import input_hash

if TYPE_CHECKING:
    from draftmill.corpus.record import Ids

NO_TOKEN_IDS = "no_token_ids"
PROMPT_MISSING = "prompt_missing"
NO_INPUT_HASH = "no_input_hash"
OTHER_PROMPT = "other_prompt"
INCONSISTENT = "inconsistent"
OUTSIDE_VOCABULARY = "outside_vocabulary"


class Refused(Exception):  # noqa: N818 - an outcome, not a fault of the program
    """This response cannot become a row; `reason` is one of the words above."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Joined:
    """A row in the making: `ids` is prompt ids + output ids, shape [head.tokens]."""

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


def _sent_ids(response: Response, prompts: PromptIndex) -> list[int]:
    if response.input_ids is not None:
        return response.input_ids
    prompt = prompts.find(response.id)
    if prompt is None:
        raise Refused(PROMPT_MISSING)
    return prompt.input_ids


def join(response: Response, prompts: PromptIndex, meta: PromptsMeta, dataset: str) -> Joined:
    """Training ids of a response: what was sent and what came back, neither decoded nor encoded.

    Raises Refused where there are no ids or no hash to check them by (rows of older layouts), where the prompt is gone, where it is not
    the one that was sent (another tokenizer, template or source revision has rendered it since), where the row contradicts itself, or
    where an id lies outside the vocabulary.
    """
    import numpy as np

    if not response.output_ids:
        raise Refused(NO_TOKEN_IDS)
    if not response.input_hash:
        raise Refused(NO_INPUT_HASH)
    sent = _sent_ids(response, prompts)
    if len(response.output_ids) != response.completion_tokens or response.finish_reason not in {"stop", "length"}:
        raise Refused(INCONSISTENT)
    wide = np.array(sent + response.output_ids, dtype=np.int64)
    if wide.size and not 0 <= int(wide.min()) <= int(wide.max()) < meta.vocab_size:
        raise Refused(OUTSIDE_VOCABULARY)
    if input_hash(sent) != response.input_hash:
        raise Refused(OTHER_PROMPT)
    head = Head(
        id=response.id,
        dataset=dataset,
        conversation=response.conversation,
        turn=response.turn,
        prompt_tokens=len(sent),
        completion_tokens=response.completion_tokens,
        finish_reason=response.finish_reason,
    )
    return Joined(head, wide.astype(np.int32))
