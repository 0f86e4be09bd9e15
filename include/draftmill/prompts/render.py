"""Messages to prompt token ids, through the model's own chat template.

The ids are those of `apply_chat_template(messages, tools=..., add_generation_prompt=True, tokenize=True)`. Rendering to text and encoding
a batch of texts at once is faster, and is used where a trial shows the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from draftmill.errors import PermanentError
from draftmill.prompts.probe import make_probe
from draftmill.prompts.special_text import SpecialText, is_tiktoken
from draftmill.prompts.tokenizer import LoadedTokenizer
from draftmill.sources.chat import Message, SkipRow

Tools = list[dict[str, Any]] | None
Encoder = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class Rendered:
    """Prompt token ids, or the reason why there are none. `special_text`: user text spelled a control token."""

    ids: list[int] | None
    reason: str | None = None
    special_text: bool = False


_PLAIN_FIELDS = 2
"""Role and content: what most messages have."""
_TRIALS: tuple[list[Message], ...] = (
    [{"role": "user", "content": "What is 2 + 2?\n\n  Answer in one word: «vier», 四, 🙂."}],
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "  Go on.\n"}],
)


class Renderer:
    """Renders with one tokenizer under one policy for user text that spells control tokens.

    Raises PermanentError at once where the template gives no usable prompt: no generation prompt, two BOS tokens, ids outside the
    vocabulary.
    """

    def __init__(self, loaded: LoadedTokenizer, policy: Literal["plain", "skip"]) -> None:
        self._tokenizer = loaded.tokenizer
        self._kwargs = loaded.template_kwargs
        self._vocab_size = loaded.vocab_size
        self._policy = policy
        self.special = SpecialText(loaded.tokenizer)
        self._where = loaded.about["model_path"]
        self._encode = self._quickest_encoder()
        self.about = {**loaded.about, "probe": make_probe(loaded.tokenizer, self.text(_TRIALS[0], None))}

    def render(self, conversations: Sequence[tuple[list[Message], Tools]], *, own_answers: bool = False) -> list[Rendered]:
        """Render a batch.

        own_answers: answers in the history are the model's own, so control tokens in them are its own, too.
        """
        results: list[Rendered | None] = [None] * len(conversations)
        texts: list[str] = []
        places: list[int] = []
        for place, (messages, tools) in enumerate(conversations):
            try:
                if self._spells_control_token(messages, tools, own_answers):
                    results[place] = self._with_special_text(messages, tools, own_answers)
                    continue
                texts.append(self.text(messages, tools))
                places.append(place)
            except SkipRow as skip:
                results[place] = Rendered(None, skip.reason, skip.reason == "special_token_text")
        for place, ids in zip(places, self.encode(texts), strict=True):
            results[place] = self._checked(ids, special_text=False)
        return [result for result in results if result is not None]

    def text(self, messages: list[Message], tools: Tools) -> str:
        """The rendered prompt as text. SkipRow(`template_refused`) where the template raises on such a conversation."""
        from jinja2 import TemplateError

        try:
            rendered = self._tokenizer.apply_chat_template(
                messages, tools=tools or None, tokenize=False, add_generation_prompt=True, **self._kwargs
            )
        except (TemplateError, TypeError, ValueError, KeyError):
            raise SkipRow("template_refused") from None
        return str(rendered)

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, control tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of rendered texts, control tokens in them taken as such."""
        if not texts:
            return []
        return self._encode(texts)

    def _spells_control_token(self, messages: list[Message], tools: Tools, own_answers: bool) -> bool:
        spelled_in = self.special.spelled_in
        for message in messages:
            if own_answers and message["role"] == "assistant":
                continue
            if spelled_in(message["content"]) or (len(message) > _PLAIN_FIELDS and any(map(spelled_in, texts_in(message)))):
                return True
        return tools is not None and any(map(spelled_in, texts_in(tools)))

    def _with_special_text(self, messages: list[Message], tools: Tools, own_answers: bool) -> Rendered:
        if self._policy == "skip" or not self.special.can_encode:
            raise SkipRow("special_token_text")
        if any(self.special.is_private(text) for text in texts_in([messages, tools])):
            raise SkipRow("private_use_characters")
        shield = self.special.shield
        shielded = [message if own_answers and message["role"] == "assistant" else shield(message) for message in messages]
        rendered = self.text(shielded, shield(tools))
        return self._checked(self.special.encode(rendered), special_text=True)

    def _checked(self, ids: list[int], *, special_text: bool) -> Rendered:
        if not ids or max(ids) >= self._vocab_size:
            return Rendered(None, "outside_vocabulary" if ids else "empty_prompt", special_text)
        return Rendered(ids, special_text=special_text)

    def _quickest_encoder(self) -> Encoder:
        """The first way of encoding that gives the ids of `apply_chat_template` in trials."""
        trials = [(self.text(trial, None), self._trial_ids(trial)) for trial in _TRIALS]
        for encoder in _encoders(self._tokenizer):
            if all(encoder([text]) == [ids] for text, ids in trials):
                return encoder
        raise PermanentError(f"tokenizer at {self._where}: its chat template gives other ids as tokens than as text; it cannot be used")

    def _trial_ids(self, messages: list[Message]) -> list[int]:
        apply = self._tokenizer.apply_chat_template
        # transformers 5 returns a dict unless told not to; version 4 returns a list either way.
        ids = list(apply(messages, add_generation_prompt=True, tokenize=True, return_dict=False, **self._kwargs))
        bare = apply(messages, add_generation_prompt=False, tokenize=True, return_dict=False, **self._kwargs)
        # Templates such as Mistral's have no generation prompt: their user turns end in what an answer follows.
        expected = "add_generation_prompt" in str(self._tokenizer.chat_template)
        if ids[: len(bare)] != list(bare) or (expected and len(ids) == len(bare)):
            raise PermanentError(f"tokenizer at {self._where}: its chat template adds no generation prompt after a user turn")
        if ids[:2] == [self._tokenizer.bos_token_id] * 2:
            raise PermanentError(f"tokenizer at {self._where}: its chat template begins with two {self._tokenizer.bos_token} tokens")
        if max(ids) >= self._vocab_size:
            raise PermanentError(f"tokenizer at {self._where} makes id {max(ids)}, but the model has only {self._vocab_size} ids")
        return ids


def texts_in(value: Any) -> Iterator[str]:
    """All strings of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


def _encoders(tokenizer: Any) -> Iterator[Encoder]:
    """Ways of encoding rendered texts, quickest first."""
    if getattr(tokenizer, "is_fast", False):
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.no_padding()
        backend.no_truncation()
        if hasattr(backend, "encode_batch_fast"):
            yield lambda texts: [list(encoding.ids) for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
    elif is_tiktoken(tokenizer):
        yield lambda texts: [tokenizer.encode(text, allow_special_tokens=True) for text in texts]
    yield lambda texts: [list(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
