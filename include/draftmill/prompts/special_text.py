"""User text that spells a control token, encoded as the plain text it is.

A tokenizer finds control tokens by searching the rendered text, and cannot know who wrote them. So before rendering, what user text spells
is replaced by stand-ins from Unicode's private planes, which templates carry along untouched; after rendering, every control token still
found is the template's own. It is then renamed, to a private character that a copy of the tokenizer knows as that same token, and the
stand-ins become user text again, in which the copy finds no token. The copy splits and merges as the tokenizer does, in one pass over the
whole text; so nothing changes where user text spells nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_STAND_IN, _RENAMED = 0xF0000, 0x100000
_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
_MARKUP = re.compile(r"[<\[(|{].*[>\])|}]", re.DOTALL)


def control_tokens(tokenizer: Any) -> dict[str, int]:
    """Tokens that steer the model, with their ids: special ones, and added ones that look like markup (`<think>`, `<tool_call>`).

    Added tokens for runs of spaces and the like are text.
    """
    found = (
        {str(token): int(number) for token, number in getattr(tokenizer, "special_tokens", {}).items()} if is_tiktoken(tokenizer) else {}
    )
    for number, token in tokenizer.added_tokens_decoder.items():
        if token.special or _MARKUP.fullmatch(token.content):
            found[token.content] = int(number)
    for token in tokenizer.all_special_tokens:
        found[str(token)] = int(tokenizer.convert_tokens_to_ids(token))
    return {token: number for token, number in found.items() if token.strip()}


def is_tiktoken(tokenizer: Any) -> bool:
    """Kimi's tokenizer class: a tiktoken encoding in `model`, its control tokens in `special_tokens`."""
    return hasattr(getattr(tokenizer, "model", None), "encode_ordinary")


class SpecialText:
    """Finds control tokens in user text, and encodes rendered text in which they stand as text.

    can_encode: whether this tokenizer allows it; where not, such rows can only be skipped.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokens = control_tokens(tokenizer)
        longest_first = sorted(self._tokens, key=lambda token: (-len(token), token))
        self._order = {token: index for index, token in enumerate(longest_first)}
        self._names = longest_first
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else re.compile(r"(?!)")
        self._encode = self._encoder(tokenizer)

    @property
    def can_encode(self) -> bool:
        """Whether text can be encoded with control tokens in it as plain text."""
        return self._encode is not None

    def spelled_in(self, text: str) -> bool:
        """Whether `text` spells a control token."""
        return self._pattern.search(text) is not None

    def is_private(self, text: str) -> bool:
        """Whether `text` uses the characters that stand-ins are made of."""
        return _PRIVATE.search(text) is not None

    def shield(self, value: Any) -> Any:
        """A copy of a JSON value with stand-ins for all control tokens in its texts."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: chr(_STAND_IN + self._order[match[0]]), value)
        if isinstance(value, dict):
            return {key: self.shield(item) for key, item in value.items()}
        return [self.shield(item) for item in value] if isinstance(value, list) else value

    def encode(self, rendered: str) -> list[int]:
        """Token ids of rendered text with stand-ins. Only where `can_encode`."""
        assert self._encode is not None, "the caller asks can_encode first"
        return self._encode(rendered)

    def _restore(self, text: str) -> str:
        return _PRIVATE.sub(lambda match: self._names[ord(match[0]) - _STAND_IN] if ord(match[0]) < _RENAMED else match[0], text)

    def _encoder(self, tokenizer: Any) -> Callable[[str], list[int]] | None:
        if len(self._names) > _RENAMED - _STAND_IN:
            return None
        if getattr(tokenizer, "is_fast", False):
            return self._fast(tokenizer)
        return self._tiktoken(tokenizer) if is_tiktoken(tokenizer) else None

    def _fast(self, tokenizer: Any) -> Callable[[str], list[int]]:
        copy = self._renamed_copy(tokenizer)

        def encode(rendered: str) -> list[int]:
            renamed = self._pattern.sub(lambda match: chr(_RENAMED + self._order[match[0]]), rendered)
            return list(copy.encode(self._restore(renamed), add_special_tokens=False).ids)

        return encode

    def _renamed_copy(self, tokenizer: Any) -> Any:
        """The tokenizer with every control token under a private name, in its list of added tokens and in its vocabulary."""
        from tokenizers import Tokenizer

        state = json.loads(tokenizer.backend_tokenizer.to_str())
        renamed = {token: chr(_RENAMED + index) for token, index in self._order.items()}
        for added in state["added_tokens"]:
            added["content"] = renamed.get(added["content"], added["content"])
        vocabulary = state["model"].get("vocab")
        if isinstance(vocabulary, dict):
            state["model"]["vocab"] = {renamed.get(token, token): number for token, number in vocabulary.items()}
        elif isinstance(vocabulary, list):
            state["model"]["vocab"] = [[renamed.get(token, token), score] for token, score in vocabulary]
        if state["model"].get("unk_token") in renamed:
            state["model"]["unk_token"] = renamed[state["model"]["unk_token"]]
        state["post_processor"] = state["truncation"] = state["padding"] = None
        return Tokenizer.from_str(json.dumps(state))

    def _tiktoken(self, tokenizer: Any) -> Callable[[str], list[int]]:
        """tiktoken splits at control tokens before anything else, so pieces between them can be encoded one by one."""

        def plain(text: str) -> list[int]:
            return list(tokenizer.encode(self._restore(text), allow_special_tokens=False))

        def encode(rendered: str) -> list[int]:
            ids: list[int] = []
            position = 0
            for match in self._pattern.finditer(rendered):
                ids += plain(rendered[position : match.start()])
                ids.append(self._tokens[match[0]])
                position = match.end()
            return ids + plain(rendered[position:])

        return encode
