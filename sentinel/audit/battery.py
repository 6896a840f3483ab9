"""The leakage and artefact battery (the paper, Appendix A): baselines, controls, duplicates.

All TF–IDF models are fitted over *episodes* (one text each), on the folds of the heads: a baseline
that comes near a head says what the head need not have learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.audit.measure import Bools, Floats, control, measured, row
from sentinel.audit.pool import TrainPool
from sentinel.heads.config import ANSWERABILITY, HEADS, HeadConfig
from sentinel.heads.tfidf import classifier, vectorizer_of
from sentinel.tables import FEATURES

TELEMETRY = {"ent_mean": 1.0, "ent_max": 1.0, "lp_mean": -1.0}
"""Training-free scores, and their sign as doubt: entropy high, log-probability low."""
UNJUDGED = "off: the tasks do not say whether they can be answered"
SILENT = "off: the engine gave no log-probabilities"


def battery(
    pool: TrainPool, *, permutations: int = 3, resamples: int = 1000, seed: int = 42
) -> list[dict[str, Any]]:
    """Rows of the table `audit` (but for benchmark and agent) of every check that needs no torch.

    `permutations` of the labels over episodes; `resamples` of templates for each interval.
    """
    how = {"resamples": resamples, "seed": seed}
    rows = []
    for head in HEADS:
        rows += list(_of_target(pool, head, permutations, how))
    return [*rows, ending_only(pool, **how), duplicates(pool)]


def _of_target(
    pool: TrainPool, head: str, permutations: int, how: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    use = pool.eligible(head)
    names = [f"permutation {k + 1}" for k in range(permutations)]
    if not use.any():
        why = UNJUDGED if head == ANSWERABILITY else "undefined: no episode with a verdict"
        for check in ("head", "question-only", "transcript"):
            yield row(check, head, note=why)
        yield from (row("telemetry", head, name, note=why) for name in TELEMETRY)
        yield from (row("shuffled-tfidf", head, name, note=why) for name in names)
        return
    fold, group, positive = pool.fold[use], pool.group[use], pool.targets[head][use] > 0.5

    def auroc(check: str, variant: str, scores: Floats, note: str | None = None) -> dict[str, Any]:
        return measured(check, head, variant, scores, positive, fold, group, note=note, **how)

    for variant, logits in (("t=T", pool.logits[head]), ("t=0", pool.first_logits[head])):
        missing = bool(np.isnan(logits[use]).all())
        cause = "undefined: the head could not be fitted" if missing else None
        yield auroc("head", variant, logits[use], cause)
    (question,) = out_of_fold(pool.question[use], [positive], fold, how["seed"])
    yield auroc("question-only", "-", question)
    shuffled = [permuted(positive, how["seed"], k) for k in range(permutations)]
    plain, *controls = out_of_fold(pool.transcript[use], [positive, *shuffled], fold, how["seed"])
    yield auroc("transcript", "-", plain)
    yield from telemetry(pool, head, **how)
    for name, scores, labels in zip(names, controls, shuffled, strict=True):
        yield control("shuffled-tfidf", head, name, scores, labels, fold)


def permuted(positive: Bools, seed: int, k: int) -> Bools:
    """The k-th permutation of labels over episodes, shape (n,)."""
    rng = np.random.Generator(np.random.PCG64([seed, k]))
    return positive[rng.permutation(len(positive))]


def out_of_fold(
    texts: NDArray[np.object_],
    labels: list[Bools],
    fold: NDArray[np.int64],
    seed: int,
) -> list[Floats]:
    """TF–IDF logits of n texts, each from the other folds, for every vector of labels in turn.

    The terms of a fold know no label, so they are found once for all. NaN where the other folds
    hold one class.
    """
    config = HeadConfig(kind="tfidf")
    found = [np.full(len(texts), np.nan) for _ in labels]
    for f in np.unique(fold):
        held = fold == f
        if held.all():
            continue
        vectorizer = vectorizer_of(int((~held).sum()))
        training = vectorizer.fit_transform(list(texts[~held]))
        scored = vectorizer.transform(list(texts[held]))
        for logits, positive in zip(found, labels, strict=True):
            if len(set(positive[~held])) == 2:
                model = classifier(config, seed).fit(training, positive[~held])
                logits[held] = model.decision_function(scored)
    return found


def telemetry(
    pool: TrainPool, head: str, *, resamples: int = 1000, seed: int = 42
) -> list[dict[str, Any]]:
    """Training-free scores at T: mean and largest entropy, mean log-probability, read as doubt."""
    use = pool.eligible(head)
    positive = pool.targets[head][use] > 0.5
    rows = []
    for name, sign in TELEMETRY.items():
        doubt = sign * pool.features[use, FEATURES.index(name)]
        scores = doubt if head == ANSWERABILITY else -doubt
        note = SILENT if np.isnan(scores).all() else None
        rows.append(
            measured(
                "telemetry", head, name, scores, positive, pool.fold[use], pool.group[use],
                resamples=resamples, seed=seed, note=note,
            )
        )  # fmt: skip
    return rows


def ending_only(pool: TrainPool, *, resamples: int = 1000, seed: int = 42) -> dict[str, Any]:
    """Abstained ⇒ unanswerable: what the ending alone says; the step cap is no abstention."""
    use = pool.eligible(ANSWERABILITY)
    if not use.any():
        return row("ending-only", ANSWERABILITY, note=UNJUDGED)
    scores = (pool.end[use] == "abstained").astype(np.float64)
    positive = pool.targets[ANSWERABILITY][use] > 0.5
    return measured(
        "ending-only", ANSWERABILITY, "-", scores, positive, pool.fold[use], pool.group[use],
        resamples=resamples, seed=seed,
    )  # fmt: skip


def duplicates(pool: TrainPool) -> dict[str, Any]:
    """Full renderings that occur, to the letter, in two folds or more: must be none."""
    where: dict[str, dict[int, str]] = {}
    for text, fold, episode in zip(pool.transcript, pool.fold, pool.episode_id, strict=True):
        where.setdefault(text, {}).setdefault(int(fold), episode)
    shared = [folds for folds in where.values() if len(folds) > 1]
    note = None
    if shared:
        pairs = "; ".join(" = ".join(list(folds.values())[:2]) for folds in shared[:3])
        note = f"{pairs}{' …' if len(shared) > 3 else ''}"
    return row(
        "duplicates",
        value=float(len(shared)),
        n=len(pool),
        folds=len(np.unique(pool.fold)),
        passed=not shared,
        note=note,
    )
