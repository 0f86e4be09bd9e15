from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.ids import IdIndex, id_number
from draftmill.prompts.prompt import content_id

ids = st.builds(lambda n: content_id(b"prompt %d" % n), st.integers(0, 50)) | st.text(min_size=1, max_size=3)


@given(st.lists(ids), st.lists(ids))
def test_it_is_a_set(added: list[str], asked: list[str]) -> None:
    index = IdIndex()
    for prompt_id in added:
        index.add(prompt_id)
    assert len(index) == len({id_number(prompt_id) for prompt_id in added})
    for prompt_id in added + asked:
        assert (prompt_id in index) == (prompt_id in added)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30),
)
def test_many_at_once_keep_their_first_place_and_name_the_doubled(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    index = IdIndex()
    seen: dict[tuple[int, int], int] = {}
    for base, batch in ((0, first), (1000, second)):
        words = np.array(batch, np.uint64).reshape(-1, 2)
        doubled = index.load(words[:, 0], words[:, 1], np.arange(base, base + len(batch)))
        expected = []
        for place, pair in enumerate(batch):
            if pair in seen:
                expected.append(place)
            seen.setdefault(pair, base + place)
        assert doubled == expected
    for (high, low), place in seen.items():
        assert index.place(f"{high:016x}{low:016x}") == place
    assert index.place(f"{9:032x}") is None


def test_recent_ids_are_merged_and_still_found(monkeypatch: object) -> None:
    import draftmill.generation.ids as module

    module_merge = module._MERGE_AT
    try:
        module._MERGE_AT = 10
        index = IdIndex()
        for number in range(95):
            index.add(content_id(b"%d" % number), number)
        assert [index.place(content_id(b"%d" % number)) for number in range(96)] == [*range(95), None]
        assert len(index) == 95
    finally:
        module._MERGE_AT = module_merge
