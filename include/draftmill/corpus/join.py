"""A response joined to its prompt, and the reasons for which a response cannot become a training row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftmill.corpus.prompt_index import PromptIndex
from draftmill.corpus.prompts_meta import PromptsMeta
from draftmill.corpus.record import Head, Row
from draftmill.generation.response import Response
from draftmill.prompts.prompt import content_id

if TYPE_CHECKING:
    from draftmill.corpus.record import Ids

NO_OUTPUT_IDS = "no_output_ids"
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


def _sent_ids(response: Response, prompts: PromptIndex) -> Sequence[int]:
    if response.input_ids is not None:
        return response.input_ids
    ids = prompts.find(response.id)
    if ids is None:
        raise Refused(PROMPT_MISSING)
    return ids


def join(response: Response, prompts: PromptIndex, meta: PromptsMeta, dataset: str) -> Row:
    """Training ids of a response: what was sent and what came back, neither decoded nor encoded.

    Raises Refused where there are no ids or no hash to check them by (rows of older layouts), where the prompt is gone, where it is not
    the one that was sent (another tokenizer, template or source revision has rendered it since), where the row contradicts itself, or
    where an id lies outside the vocabulary.
    """
    import numpy as np

    if not response.output_ids:
        raise Refused(NO_OUTPUT_IDS)
    if not response.input_hash:
        raise Refused(NO_INPUT_HASH)
    if len(response.output_ids) != response.completion_tokens or response.finish_reason not in {"stop", "length"}:
        raise Refused(INCONSISTENT)
    sent = _int32(_sent_ids(response, prompts), meta.vocab_size)
    received = _int32(response.output_ids, meta.vocab_size)
    if content_id(sent.tobytes()) != response.input_hash:
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
    return Row(head, np.concatenate([sent, received]))


def _int32(ids: Sequence[int], vocab_size: int) -> Ids:
    """Ids as an array; Refused where one is not in [0, vocab_size)."""
    import numpy as np

    try:
        array = np.asarray(ids, np.int64)
    except OverflowError:
        raise Refused(OUTSIDE_VOCABULARY) from None
    # As unsigned numbers, negative ones are the largest: one look for both ends.
    if len(array) and int(array.view(np.uint64).max()) >= vocab_size:
        raise Refused(OUTSIDE_VOCABULARY)
    return array.astype("<i4")
