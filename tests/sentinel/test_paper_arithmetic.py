"""The paper's own arithmetic, on made-up outcomes with its counts: 2,101 questions, 60 without an
answer, 41 templates (Tables 1, 3, 4 and 7, Appendix F)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from sentinel.bootstrap import cluster_weights
from sentinel.decide import Prefixes
from sentinel.decide.ladder import Clusters, natural, reweighted, score, score_intervals
from sentinel.decide.play import Decisions, outcome

N, UNANSWERABLE, TEMPLATES = 2101, 60, 41
ABSTAIN = UNANSWERABLE / N
TABLE_1 = {
    # vanilla agent: accuracy of its answers, RS(1), RS(4), RS(9)
    "GPT-4o-mini": ("0.48", "-0.02", "-1.34", "-3.53"),
    "GPT-4o": ("0.54", "+0.08", "-1.08", "-3.02"),
    "Llama-3.1-8B": ("0.31", "-0.23", "-1.61", "-3.91"),
    "Qwen2.5-Coder-7B": ("0.22", "-0.46", "-2.43", "-5.72"),
    "Phi-4-mini": ("0.087", "-0.46", "-2.03", "-4.64"),
}
FULL_1_AND_4 = {
    # full system: RS(λ) of Table 1, its gain over always abstaining of Table 4, per λ = 1, 4, 9
    "GPT-4o-mini": (("+0.21", "+0.177"), ("+0.08", "+0.048"), ("+0.04", "+0.015")),
    "GPT-4o": (("+0.24", "+0.209"), ("+0.02", "-0.010"), ("+0.03", "+0.001")),
    "Llama-3.1-8B": (("+0.06", "+0.029"), ("+0.03", "+0.000"), ("+0.03", "+0.000")),
    "Qwen2.5-Coder-7B": (("+0.10", "+0.075"), ("+0.03", "+0.001"), ("+0.03", "+0.001")),
    "Phi-4-mini": (("+0.04", "+0.010"), ("+0.03", "+0.000"), ("+0.03", "+0.000")),
}


@dataclass(frozen=True)
class Counts:
    """What a system delivers: right answers, wrong ones, answers to unanswerable questions."""

    right: int
    wrong: int
    fabricated: int


GPT_4O = {
    # 84 % answered at 54 %; the gate takes back most fabrications; Chow: 55 % at 69 %
    "vanilla": Counts(942, 794, 20),
    "gate": Counts(940, 786, 5),
    "full": Counts(796, 352, 2),
}


def pool_of(answered: Counts, seed: int = 0) -> Prefixes:
    """Outcomes of the bare agent over 41 templates, three of them without an answer; T = 2."""
    rng = np.random.default_rng(seed)
    answerable = np.arange(N) >= UNANSWERABLE
    group = np.where(answerable, 3 + rng.integers(0, TEMPLATES - 3, N), np.arange(N) % 3)
    good = np.zeros(N, dtype=bool)
    committed = np.zeros(N, dtype=bool)
    committed[: answered.fabricated] = True
    good[UNANSWERABLE : UNANSWERABLE + answered.right] = True
    committed[UNANSWERABLE : UNANSWERABLE + answered.right + answered.wrong] = True
    T = np.full(N, 2)
    rows = np.full(3 * N, 0.5)
    return Prefixes(
        agent="GPT-4o",
        episode=np.array([f"q{i:04d}" for i in range(N)], dtype=object),
        group=np.array([f"g{g:02d}" for g in group], dtype=object),
        pool=np.full(N, "heldout", dtype=object),
        T=T,
        answerable=answerable,
        answered=committed,
        good=good,
        labelled=np.ones(N, dtype=bool),
        start=np.arange(N) * 3,
        t=np.tile([0, 1, 2], N),
        p_answerable=rows,
        score=np.zeros(3 * N),
        p_correct=rows,
    )


def played(pool: Prefixes, name: str, delivered: Counts | None, lam: str) -> Decisions:
    """A system that delivers the first so many of each kind; None refuses every question."""
    out = np.zeros(N, dtype=bool)
    if delivered is not None:
        first = np.cumsum(pool.good) <= delivered.right
        out |= pool.good & first
        wrong = pool.answered & pool.answerable & ~pool.good
        out |= wrong & (np.cumsum(wrong) <= delivered.wrong)
        made_up = pool.answered & ~pool.answerable
        out |= made_up & (np.cumsum(made_up) <= delivered.fabricated)
    nothing = np.zeros(N, dtype=np.int64)
    return Decisions(name, lam, pool.T, nothing, out, np.full(N, np.nan), *outcome(pool, out))


def gains_of(pool: Prefixes, decided: Decisions) -> np.ndarray:
    """RS of each question less always-abstain's."""
    return decided.reward - (~pool.answerable)


@pytest.fixture(scope="module")
def pool() -> Prefixes:
    """The bare agent's outcomes."""
    return pool_of(GPT_4O["vanilla"])


@pytest.mark.parametrize("lam", ["0", "1", "2.5", "4", "9", "1000"])
def test_always_abstain_scores_the_unanswerable_share_at_every_stake(
    pool: Prefixes, lam: str
) -> None:
    refuse = played(pool, "full", None, lam)
    assert score(refuse) == ABSTAIN
    assert f"{score(refuse):+.3f}" == "+0.029"
    (found,) = score_intervals(pool, Clusters.of(pool, 200, 1), [refuse], [refuse])
    gap = found["rs_minus_abstain"]
    assert (gap.point, gap.low, gap.note) == (0.0, None, "too few groups")


@pytest.mark.parametrize(("lam", "vanilla", "full"), [("1", "+0.08", "+0.24")])
def test_a_row_of_table_1(pool: Prefixes, lam: str, vanilla: str, full: str) -> None:
    assert f"{score(played(pool, 'vanilla', GPT_4O['vanilla'], lam)):+.2f}" == vanilla
    assert f"{score(played(pool, 'full', GPT_4O['full'], lam)):+.2f}" == full
    for stakes, expected in (("4", "-1.08"), ("9", "-3.02")):
        bare = played(pool, "vanilla", GPT_4O["vanilla"], stakes)
        assert f"{score(bare):+.2f}" == expected
    bare = GPT_4O["vanilla"]
    answers = bare.right + bare.wrong + bare.fabricated
    assert (round(answers / N, 2), round(bare.right / answers, 2)) == (0.84, 0.54)
    kept = GPT_4O["full"]
    answers = kept.right + kept.wrong + kept.fabricated
    assert (round(answers / N, 2), round(kept.right / answers, 2)) == (0.55, 0.69)


@pytest.mark.parametrize("agent", TABLE_1)
def test_every_vanilla_row_has_counts_that_give_it(agent: str) -> None:
    """RS(λ) is a straight line in λ: one pair of counts gives the accuracy and all three scores."""
    accuracy, *scores = TABLE_1[agent]
    digits = len(accuracy) - 2
    slope = (float(scores[0]) - float(scores[2])) / 8
    found = []
    for loss in range(int((slope - 0.002) * N), int((slope + 0.002) * N) + 1):
        for gain in range(
            int((float(scores[0]) + slope - 0.01) * N),
            int((float(scores[0]) + slope + 0.01) * N) + 1,
        ):
            shown = [f"{(gain - lam * loss) / N:+.2f}" for lam in (1, 4, 9)]
            # gain = right answers + correct refusals, at most all unanswerable ones
            right = [gain - r for r in range(UNANSWERABLE + 1)]
            fits = any(r > 0 and round(r / (r + loss), digits) == float(accuracy) for r in right)
            if shown == list(scores) and fits:
                found.append((gain, loss))
    assert found


@pytest.mark.parametrize("agent", FULL_1_AND_4)
def test_table_4_is_table_1_less_always_abstain(agent: str) -> None:
    for rs, gain in FULL_1_AND_4[agent]:
        assert abs(float(rs) - ABSTAIN - float(gain)) <= 0.005 + 0.0005 + 1e-9


def test_table_4_from_the_outcomes(pool: Prefixes) -> None:
    """+0.209 at λ = 1, with the interval of plainly resampled templates."""
    full, bare = (played(pool, s, GPT_4O[s], "1") for s in ("full", "vanilla"))
    clusters = Clusters.of(pool, 300, 5)
    (found,) = score_intervals(pool, clusters, [full], [bare])
    gap = found["rs_minus_abstain"]
    assert f"{gap.point:+.3f}" == "+0.209"
    assert gap.dagger
    differ = {g for g in range(TEMPLATES) if gains_of(pool, full)[clusters.index == g].sum()}
    assert gap.clusters == len(differ)
    weights = cluster_weights(TEMPLATES, 300, 5)
    gains = gains_of(pool, full)
    draws = []
    for w in weights:
        rows = w[clusters.index]
        draws.append((rows * gains).sum() / rows.sum())
    assert (gap.low, gap.high) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])))


def test_reweighting_is_linear_in_the_share(pool: Prefixes) -> None:
    """Appendix F: +0.16 and +0.12 at 20 % and 33 %, on a straight line through the pool's own."""
    clusters = Clusters.of(pool, 100, 5)
    systems = {s: played(pool, s, counts, "1") for s, counts in GPT_4O.items()}
    shares = ["0.1", "0.2", "0.33", "0.7"]
    for name in GPT_4O:
        gaps = [reweighted(pool, clusters, systems, s)[name].point for s in shares]
        values = np.array([g + float(s) for g, s in zip(gaps, shares, strict=True)])  # type: ignore[operator]
        slopes = np.diff(values) / np.diff([float(s) for s in shares])
        np.testing.assert_allclose(slopes, slopes[0], atol=1e-12)
        own = values[0] + slopes[0] * (ABSTAIN - 0.1)
        assert own == pytest.approx(score(systems[name]))
    gain = {s: reweighted(pool, clusters, systems, s)["full"].point for s in ("0.2", "0.33")}
    assert (f"{gain['0.2']:+.2f}", f"{gain['0.33']:+.2f}") == ("+0.16", "+0.12")
    refuse = {name: played(pool, name, None, "1") for name in GPT_4O}
    for share in shares:
        assert reweighted(pool, clusters, refuse, share)["full"].point == pytest.approx(0.0)


def test_the_gates_share_of_the_gain_grows_with_the_unanswerable_share(pool: Prefixes) -> None:
    clusters = Clusters.of(pool, 100, 5)
    systems = {s: played(pool, s, counts, "1") for s, counts in GPT_4O.items()}
    means = {name: natural(clusters, d)[0] for name, d in systems.items()}
    own = (means["gate"] - means["vanilla"]) / (means["full"] - means["vanilla"])  # type: ignore[operator]
    at = reweighted(pool, clusters, systems, "0.33")["gate_share"].point
    assert at is not None
    assert 0 < own < at < 1
