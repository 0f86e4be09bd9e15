"""Turns after the first (`turns: all`): the next user message, with the history that the model itself has generated."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.jobs.step import StepContext
from draftmill.prompts.prompt import Prompt, content_id, input_hash
from draftmill.prompts.render import Renderer
from draftmill.prompts.room import prompt_room
from draftmill.prompts.tokenizer import load_tokenizer, tokenizer_request
from draftmill.sources.chat import Message

_OPEN, _CLOSE = "<think>", "</think>"
_TAIL_TOKENS = 8
"""Enough of a prompt's end to see whether the generation prompt opens the reasoning (`<think>`, or `<think>` and a line end)."""


@dataclass(frozen=True)
class TurnRenderer:
    """Renders later turns as `prepare` renders first ones. Build it once with `of`: loading the tokenizer takes seconds.

    eos_ids: ids that end an answer. limits: longest prompts in tokens, None for no limit.
    """

    renderer: Renderer
    eos_ids: frozenset[int]
    limits: tuple[int | None, ...]

    @classmethod
    def of(cls, ctx: StepContext) -> TurnRenderer:
        """For the step's data set. Raises what loading the tokenizer raises: PermanentError, TemporaryError."""
        loaded = load_tokenizer(tokenizer_request(ctx.plan.server.profile, ctx.workspace))
        renderer = Renderer(loaded, ctx.plan.special_token_text)
        limits = (ctx.dataset.max_prompt_tokens, prompt_room(ctx.dataset, loaded.context_length))
        return cls(renderer, frozenset(loaded.about["eos_token_ids"]), limits)

    def answer(self, prompt_ids: list[int], output_ids: list[int]) -> Message | None:
        """A generated answer as a message; None where it is unfinished: no end token, or reasoning that was not closed.

        The reasoning goes into `reasoning_content`, and the template decides what of it stays in the history.
        """
        if not output_ids or output_ids[-1] not in self.eos_ids:
            return None
        end = len(output_ids)
        while end and output_ids[end - 1] in self.eos_ids:
            end -= 1
        text = self.renderer.decode(output_ids[:end])
        if self.renderer.decode(prompt_ids[-_TAIL_TOKENS:]).rstrip().endswith(_OPEN):
            text = _OPEN + text
        if not text.lstrip().startswith(_OPEN):
            return {"role": "assistant", "content": text}
        reasoning, closed, content = text.lstrip().removeprefix(_OPEN).partition(_CLOSE)
        if not closed:
            return None
        return {"role": "assistant", "content": content.lstrip("\n"), "reasoning_content": reasoning.strip("\n")}


def next_prompt(renderer: TurnRenderer, prompt: Prompt, output_ids: list[int]) -> Prompt | None:
    """The prompt of the turn after `prompt`, given what the model answered to it; None where the conversation ends.

    It ends with its last user turn, after an unfinished answer, and where the next prompt would be too long or cannot be rendered.
    The id is made of the last prompt's id and of the answer, and so of the whole history: a resumed run finds the same id.
    """
    if not prompt.later_turns or prompt.messages is None:
        return None
    answer = renderer.answer(prompt.input_ids, output_ids)
    if answer is None:
        return None
    messages = [*prompt.messages, answer, prompt.later_turns[0]]
    ids = renderer.renderer.render([(messages, prompt.tools)], own_answers=True)[0].ids
    if ids is None or any(limit is not None and len(ids) > limit for limit in renderer.limits):
        return None
    return Prompt(
        id=content_id(f"{prompt.id} {input_hash(output_ids)}".encode()),
        input_ids=ids,
        dataset=prompt.dataset,
        conversation=prompt.conversation,
        turn=prompt.turn + 1,
        tools=prompt.tools,
        messages=messages,
        later_turns=prompt.later_turns[1:],
    )
