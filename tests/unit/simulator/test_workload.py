from __future__ import annotations

import statistics

import pytest

from draftmill.errors import PermanentError
from draftmill.simulator.workload import LengthLaw, Workload


def prompts(count: int, marker: int = 5) -> list[list[int]]:
    return [[marker, number, number // 7] for number in range(count)]


@pytest.mark.parametrize(("mean", "cap"), [(1_500, 10_240), (3_793, 10_240), (4_000, 16_384), (8_000, 16_384), (100, 512)])
def test_drawn_lengths_have_the_mean_after_the_cut(mean: int, cap: int) -> None:
    workload = Workload(seed=3, default=LengthLaw(mean, cap))
    lengths = [workload.answer(prompt, cap).tokens for prompt in prompts(20_000)]
    error = statistics.stdev(lengths) / len(lengths) ** 0.5
    assert abs(statistics.fmean(lengths) - mean) < 4 * error
    assert max(lengths) == cap


def test_an_answer_depends_on_prompt_and_seed_only() -> None:
    one, same, other = Workload(seed=1), Workload(seed=1), Workload(seed=2)
    for prompt in prompts(50):
        answer = one.answer(prompt, 512)
        assert answer == same.answer(prompt, 512)
        assert one.output_ids(prompt, answer) == same.output_ids(prompt, answer)
    differing = sum(one.answer(prompt, 512) != other.answer(prompt, 512) for prompt in prompts(50))
    assert differing > 40


def test_ids_are_inside_the_range_and_stop_ends_in_the_end_token() -> None:
    workload = Workload(default=LengthLaw(50, 1_000), first_id=10, last_id=20, eos_id=2)
    seen = set()
    for prompt in prompts(200):
        answer = workload.answer(prompt, 60)
        ids = workload.output_ids(prompt, answer)
        seen.add(answer.finish)
        assert len(ids) == answer.tokens <= 60
        assert all(10 <= token < 20 for token in ids[:-1])
        assert (ids[-1] == 2) == (answer.finish == "stop")
    assert seen == {"stop", "length"}


def test_a_cut_answer_is_the_beginning_of_the_whole_one() -> None:
    workload = Workload(default=LengthLaw(300, 1_000))
    prompt = next(prompt for prompt in prompts(100) if workload.answer(prompt, 1_000).tokens > 100)
    whole = workload.output_ids(prompt, workload.answer(prompt, 1_000))
    cut = workload.answer(prompt, 100)
    assert cut.finish == "length"
    assert workload.output_ids(prompt, cut) == whole[:100]


def test_markers_have_laws_of_their_own() -> None:
    workload = Workload(default=LengthLaw(100, 1_000), by_marker={9: LengthLaw(800, 10_000)})
    plain = statistics.fmean(workload.answer(prompt, 10_000).tokens for prompt in prompts(2_000))
    marked = statistics.fmean(workload.answer(prompt, 10_000).tokens for prompt in prompts(2_000, marker=9))
    assert plain == pytest.approx(100, rel=0.1)
    assert marked == pytest.approx(800, rel=0.1)


def test_a_mean_that_the_cap_forbids_is_refused() -> None:
    with pytest.raises(PermanentError, match="well above"):
        LengthLaw(1_000, 1_000)
