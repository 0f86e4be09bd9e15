"""Replacement characters, with a real byte-level tokenizer."""

from __future__ import annotations

import numpy as np

from draftmill.corpus.quality.characters import ReplacementCharacters
from draftmill.corpus.quality.doubts import Answer
from tests.unit.corpus.campaign import TOKENIZER, VOCABULARY
from tests.unit.corpus.test_record import make_row


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def decode(ids) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=False)


def broken(ids: list[int], finish_reason: str = "stop") -> bool:
    return ReplacementCharacters(decode, VOCABULARY)(Answer(make_row([3], ids, finish_reason=finish_reason)))


def test_characters_of_several_tokens_are_whole() -> None:
    ids = encode("naïve 漢字 🙂 text")
    assert len(ids) > len("naïve 漢字 🙂 text")
    assert not broken(ids)


def test_half_a_character_in_the_middle_is_broken() -> None:
    ids = encode("a漢b")
    assert broken([*ids[:2], *ids[-1:]])


def test_half_a_character_at_the_length_limit_is_as_right_as_it_came() -> None:
    ids = encode("a🙂")
    assert not broken(ids[:-1], "length")
    assert broken(ids[:-1], "stop")


def test_a_replacement_character_that_the_model_wrote_is_found() -> None:
    ids = encode("bad \ufffd text")
    assert broken(ids)
    assert broken([*ids, *encode("🙂")[:-1]], "length")


def test_a_token_is_decoded_alone_once() -> None:
    asked: list[int] = []

    def note(ids) -> str:
        asked.append(len(ids))
        return decode(ids)

    test = ReplacementCharacters(note, VOCABULARY)
    row = Answer(make_row([3], encode("plain words, plain words")))
    test(row)
    first = len(asked)
    test(row)
    assert len(asked) == first == len(np.unique(row.row.output_ids))
