"""A prompt on its way to becoming a response: vetted, with the bytes to send and the failures so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from draftmill.generation.response import Response
from draftmill.generation.verify import Answer, Expected
from draftmill.prompts.prompt import Prompt, input_hash
from draftmill.serving.endpoint import Endpoint

CONTEXT_MARGIN = 16
"""Tokens left unused: the usable context is a few tokens below the context length."""

LEAST_NEW_TOKENS = 16
"""A prompt that leaves room for fewer is skipped: nothing could be learned from its answer."""

TOO_LONG = "too_long"
OUTSIDE_VOCABULARY = "outside_vocabulary"
EMPTY = "empty"


@dataclass(slots=True)
class Work:
    """One prompt. ids_json: its token ids as JSON. prompt: kept only where a later turn follows or the row must carry its input ids.

    failures: attempts that failed, by kind. attempts: how often it was sent. last: rid of the attempt under way.
    """

    id: str
    conversation: str
    turn: int
    ids_json: bytes
    prompt_tokens: int
    input_hash: str
    max_new_tokens: int
    prompt: Prompt | None = None
    failures: Counter[str] = field(default_factory=Counter)
    attempts: int = 0

    def tail(self, count: int) -> list[int]:
        """The last `count` ids of the prompt."""
        ids: list[int] = orjson.loads(self.ids_json)
        return ids[-count:]


@dataclass(frozen=True)
class Limits:
    """What a request must keep to. vocab_size: ids below it are valid; any other id would kill the server. room: tokens of prompt and
    answer together, at most; longest_prompt: tokens of a prompt, at most; None where unknown."""

    vocab_size: int
    max_new_tokens: int
    room: int | None = None
    longest_prompt: int | None = None

    @classmethod
    def of(cls, endpoint: Endpoint, max_new_tokens: int, vocab_size: int | None) -> Limits | None:
        """The limits of this server for prompts made for `vocab_size`; None where neither says how large the vocabulary is."""
        sizes = [size for size in (vocab_size, endpoint.vocab_size) if size]
        rooms = [room for room in (endpoint.context_length, endpoint.kv_capacity_tokens) if room]
        if not sizes:
            return None
        return cls(min(sizes), max_new_tokens, min(rooms) - CONTEXT_MARGIN if rooms else None, endpoint.max_req_input_len)

    def vet(self, prompt: Prompt) -> Work | str:
        """The prompt as work, its max_new_tokens shrunk to fit the context where need be; or the reason why it can never be sent."""
        ids = prompt.input_ids
        if not ids:
            return EMPTY
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            return OUTSIDE_VOCABULARY
        new_tokens = self.max_new_tokens if self.room is None else min(self.max_new_tokens, self.room - len(ids))
        too_long = self.longest_prompt is not None and len(ids) > self.longest_prompt
        if too_long or new_tokens < min(LEAST_NEW_TOKENS, self.max_new_tokens):
            return TOO_LONG
        keep = prompt.later_turns or prompt.turn
        return Work(
            id=prompt.id,
            conversation=prompt.conversation,
            turn=prompt.turn,
            ids_json=orjson.dumps(ids),
            prompt_tokens=len(ids),
            input_hash=input_hash(ids),
            max_new_tokens=new_tokens,
            prompt=prompt if keep else None,
        )


class Form:
    """How requests and rows of one run are made. sampling: as the plan says, without max_new_tokens. prefix: begins every request id."""

    def __init__(self, sampling: dict[str, Any], prefix: str, eos_ids: frozenset[int], vocab_size: int | None) -> None:
        self._sampling = sampling
        self._prefix = prefix
        self._eos_ids = eos_ids
        self._vocab_size = vocab_size

    def rid(self, work: Work) -> str:
        """The request id of the present attempt. All are of one length: some servers abort every id that begins with the one given."""
        return f"{self._prefix}-{work.id}-{work.attempts:04d}"

    def sampling(self, work: Work) -> dict[str, Any]:
        """The sampling parameters of this prompt; max_new_tokens is always among them, because SGLang's default is 128."""
        return {**self._sampling, "max_new_tokens": work.max_new_tokens}

    def body(self, work: Work) -> bytes:
        """The body of POST /generate."""
        return b'{"input_ids":%s,"rid":%s,"sampling_params":%s}' % (
            work.ids_json,
            orjson.dumps(self.rid(work)),
            orjson.dumps(self.sampling(work)),
        )

    def expected(self, work: Work) -> Expected:
        """What its answer is held against."""
        return Expected(work.prompt_tokens, work.tail, work.max_new_tokens, self._vocab_size, self._eos_ids)

    def row(self, work: Work, answer: Answer, server: str, started_at: float, finished_at: float) -> Response:
        """The response as it goes into the journal."""
        return Response(
            id=work.id,
            input_hash=work.input_hash,
            output_ids=answer.output_ids,
            prompt_tokens=work.prompt_tokens,
            completion_tokens=len(answer.output_ids),
            finish_reason=answer.finish_reason,
            rid=self.rid(work),
            server=server,
            sampling=self.sampling(work),
            started_at=started_at,
            finished_at=finished_at,
            conversation=work.conversation,
            turn=work.turn,
            input_ids=work.prompt.input_ids if work.turn and work.prompt else None,
        )
