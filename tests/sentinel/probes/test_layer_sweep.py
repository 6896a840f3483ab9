"""The share is drawn before outcomes are seen, strict mode reads fit tasks only, ties go low."""

from __future__ import annotations

import numpy as np
import pytest

from sentinel.errors import UserError
from sentinel.probes.layer_sweep import LayerAuc, Sample, choose, draw, measure
from sentinel.splits import STRICT_SHARES, Pool, split_tasks

N = 300


def columns(rollouts: int = 1) -> tuple[list[str], list[str], list[bool | None]]:
    generator = np.random.default_rng(0)
    tasks = [f"t{i:03d}" for i in range(N) for _ in range(rollouts)]
    ids = [f"b/a/{t}/{i % rollouts}" for i, t in enumerate(tasks)]
    return ids, tasks, [bool(y) for y in generator.random(len(ids)) < 0.4]


def vectors(sample: Sample, signal: float, rounds: int) -> dict[tuple[str, int], np.ndarray]:
    """Sixteen wide: noise, and in one direction the outcome."""
    generator = np.random.default_rng(1)
    found = {}
    for e, y in zip(sample.episode, sample.success, strict=True):
        for r in range(1, rounds + 1):
            v = generator.normal(size=16)
            v[3] += signal * (1 if y else -1)
            found[e, r] = v.astype(np.float16)
    return found


def test_a_fifth_of_the_tasks_whatever_their_outcomes() -> None:
    ids, tasks, success = columns(rollouts=2)
    sample = draw("paper", ids, tasks, success, 0.2, seed=3)
    task_of = dict(zip(ids, tasks, strict=True))
    taken = {task_of[e] for e in sample.episode}
    assert len(taken) == 60
    assert len(sample.episode) == 120  # every rollout of a task
    assert sample.episode == tuple(sorted(sample.episode))
    other = draw("paper", ids, tasks, [not y for y in success], 0.2, seed=3)
    assert other.episode == sample.episode
    backwards = draw("paper", ids[::-1], tasks[::-1], success[::-1], 0.2, seed=3)
    assert (backwards.episode, backwards.success) == (sample.episode, sample.success)
    for part in sample.parts:
        train = {task_of[e] for e, on in zip(sample.episode, part.train, strict=True) if on}
        scored = {task_of[e] for e, on in zip(sample.episode, part.apply, strict=True) if on}
        assert not train & scored
    assert draw("paper", ids, tasks, success, 0.2, seed=4).episode != sample.episode


def test_strict_mode_reads_a_fifth_of_the_fit_tasks_and_nothing_else() -> None:
    ids, tasks, success = columns()
    pools = split_tasks(tasks, STRICT_SHARES, seed=5)
    sample = draw("strict", ids, tasks, success, 0.2, seed=5)
    taken = {e.split("/")[2] for e in sample.episode}
    assert len(taken) == 18  # of 90
    assert {pools[t] for t in taken} == {Pool.FIT}
    paper = draw("paper", ids, tasks, success, 0.2, seed=5)
    fit_of_paper = {e for e in paper.episode if pools[e.split("/")[2]] == Pool.FIT}
    assert fit_of_paper <= set(sample.episode) or set(sample.episode) <= fit_of_paper


def test_a_signal_is_found_and_noise_is_not() -> None:
    ids, tasks, success = columns()
    sample = draw("paper", ids, tasks, success, 1, seed=0)
    strong = measure(sample, 2, vectors(sample, 1.5, 2), rounds=3)
    weak = measure(sample, 1, vectors(sample, 0.0, 2), rounds=3)
    assert [m.round for m in strong] == [1, 2, 3]
    assert all(m.auc is not None and m.auc > 0.95 for m in strong[:2])
    assert all(m.auc is not None and 0.35 < m.auc < 0.65 for m in weak[:2])
    assert strong[2] == LayerAuc(2, 3, None, 0, 0)
    assert strong[0].episodes == N
    assert strong[0].failures == sum(not y for y in success)
    assert choose(strong + weak) == 2


def test_rows_without_a_vector_or_an_outcome_are_left_out() -> None:
    ids, tasks, success = columns()
    success[0] = None
    sample = draw("paper", ids, tasks, success, 1, seed=0)
    found = vectors(sample, 1.0, 1)
    del found[sample.episode[5], 1]
    (one,) = measure(sample, 1, found, rounds=1)
    assert one.episodes == N - 2


def test_a_round_at_which_all_end_alike_has_no_auc() -> None:
    ids, tasks, success = columns()
    sample = draw("paper", ids, tasks, success, 1, seed=0)
    found = vectors(sample, 1.0, 2)
    late = {k: v for k, v in found.items() if k[1] == 1 or not dict(
        zip(sample.episode, sample.success, strict=True))[k[0]]}  # fmt: skip
    first, second = measure(sample, 1, late, rounds=2)
    assert first.auc is not None
    assert (second.auc, second.episodes) == (None, 0)


def test_one_class_in_a_fold_is_named_with_the_ways_out() -> None:
    ids, tasks, _ = columns()
    rare = [i == 0 for i in range(N)]
    with pytest.raises(UserError, match=r"paper mode on 60 tasks.*activations.layers=\[K\]"):
        draw("paper", ids, tasks, list(rare), 0.2, seed=0)


def test_ties_go_to_the_lowest_layer_and_rounds_weigh_by_their_episodes() -> None:
    assert choose([]) is None
    assert choose([LayerAuc(1, 1, None, 0, 0)]) is None
    many_good = [LayerAuc(1, 1, 0.8, 100, 50), LayerAuc(1, 2, 0.5, 10, 5)]
    few_good = [LayerAuc(2, 1, 0.7, 100, 50), LayerAuc(2, 2, 0.9, 10, 5)]
    assert choose(many_good + few_good) == 1
    assert choose(few_good) == 2
