"""A scorer for transcripts of any agent: TF–IDF and a logistic regression per round.

Model r is trained on episodes alive at r (T ≥ r) to predict failure from the text through round r's
action. *strict*: tasks are split into pools, the models see fit tasks only and score the rest.
*paper*: five folds by task, drawn once, every episode cross-fitted. Words, numbers and single
marks, alone and in pairs; L2 with C = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentinel import tables
from sentinel.chat_import import ChatEpisode
from sentinel.chat_messages import COST_UNIT
from sentinel.errors import UserError
from sentinel.probes.parts import MODES, Part, round_facts, split, unfit
from sentinel.probes.text_probe import TextProbe

SCORER = "tfidf"
GATES = 6
C = 1.0
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """Scores of E episodes, sorted by id: `score` (E, G), NaN where there is none; `pool` per
    episode, None in paper mode; `facts` JSON-able: splits, and per round who was scored and why
    not."""

    episodes: tuple[ChatEpisode, ...]
    score: Floats
    pool: tuple[str | None, ...]
    facts: dict[str, Any]

    @property
    def incomplete(self) -> bool:
        """Some round lacks scores that it should have."""
        return any(row["reasons"] for row in self.facts["rounds"])


def score(
    episodes: Sequence[ChatEpisode], mode: str = "strict", seed: int = 0, gates: int = GATES
) -> Scored:
    """Score rounds 1…gates of every episode for failure; the order of episodes changes nothing.

    An episode without a known outcome trains nothing. A model whose training episodes all ended
    alike, or hold no term, scores nothing, and the reason is recorded. In paper mode a seed that
    gives a fold with one class is passed over and recorded.

    Raises UserError for too few tasks, and where no seed gives folds with both classes.
    """
    if mode not in MODES or gates < 1 or seed < 0:
        raise UserError(
            f"mode {mode}, {gates} gates, seed {seed}",
            "mode is strict or paper, gates ≥ 1, seed ≥ 0",
        )
    ordered = tuple(sorted(episodes, key=lambda e: e.episode_id))
    task = np.array([e.task_id for e in ordered], dtype=object)
    known = np.array([e.success is not None for e in ordered], dtype=bool)
    failed = np.array([e.success is False for e in ordered], dtype=bool)
    T = np.array([e.rounds for e in ordered], dtype=np.int64)
    cut = split(mode, [e.episode_id for e in ordered], task, [e.success for e in ordered], seed)
    scores = np.full((len(ordered), gates), np.nan)
    rounds = []
    for r in range(1, gates + 1):
        alive = r <= T
        texts = [e.transcript.through(r) for e in ordered if r <= e.rounds]
        column, reasons = score_round(texts, alive, failed, cut.parts, seed)
        scores[:, r - 1] = column
        rounds.append(round_facts(r, alive, known, failed, column, cut, reasons))
    facts = {**cut.facts, "mode": mode, "seed": seed, "auroc_on": cut.auroc_on, "rounds": rounds}
    return Scored(ordered, scores, cut.pool, facts)


def table(scored: Scored, cell: str) -> pa.Table:
    """`round_scores`: one row per episode and round, null scores after the last gate.

    The metadata `cost_unit` says what a cost counts.
    """
    rows = []
    for episode, values, pool in zip(scored.episodes, scored.score, scored.pool, strict=True):
        costs = episode.transcript.costs()
        for r, cost in enumerate(costs, 1):
            value = values[r - 1] if r <= len(values) else np.nan
            rows.append(
                {
                    "cell": cell,
                    "scorer": SCORER,
                    "episode_id": episode.episode_id,
                    "task_id": episode.task_id,
                    "group": episode.task_id,
                    "pool": pool,
                    "round": r,
                    "rounds_total": episode.rounds,
                    "score": None if np.isnan(value) else float(value),
                    "cost": cost,
                    "cost_total": costs[-1],
                    "success": episode.success,
                }
            )
    found = tables.ROUND_SCORES.sort(tables.ROUND_SCORES.from_rows(rows))
    return found.replace_schema_metadata({**found.schema.metadata, "cost_unit": COST_UNIT})


def score_round(
    texts: list[str],
    alive: Bools,
    failed: Bools,
    parts: Sequence[Part],
    seed: int,
    models: dict[int, TextProbe] | None = None,
) -> tuple[Floats, list[str]]:
    """Failure probabilities (E,) of the episodes alive, NaN elsewhere, and what went wrong.

    `texts`: one per episode alive, in their order; `alive`, `failed` (E,); `models` is given the
    fitted model of each part, by its number.
    """
    out = np.full(len(alive), np.nan)
    reasons = []
    counted = term_counts(texts)
    row = np.cumsum(alive) - 1
    for k, part in enumerate(parts):
        train, apply = part.train & alive, part.apply & alive
        if not apply.any():
            continue
        target = failed[train]
        reason = unfit(target)
        if reason is None and counted is not None:
            counts, terms = counted
            found = fit_apply(counts[row[train]], target, counts[row[apply]], seed)
            if found is None:
                reason = "no term is common enough"
            else:
                out[apply], fitted = found
                if models is not None:
                    models[k] = fitted.probe(terms)
        elif reason is None:
            reason = "no text"
        if reason is not None:
            reasons.append(f"{part.name}: {reason}")
    return out, reasons


def term_counts(texts: list[str]) -> tuple[Any, NDArray[np.object_]] | None:
    """Term counts of each text and the terms, in column order; None where there is no term."""
    from sklearn.feature_extraction.text import CountVectorizer

    from sentinel.heads.tfidf import TOKEN

    vectorizer = CountVectorizer(token_pattern=TOKEN, ngram_range=(1, 2))
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError:  # "empty vocabulary"
        return None
    return counts, vectorizer.get_feature_names_out()


@dataclass(frozen=True)
class Fitted:
    """A fitted model: which columns of the counts it reads, and with what weights."""

    kept: NDArray[np.int64]
    idf: Floats
    coef: Floats
    intercept: float

    def probe(self, terms: NDArray[np.object_]) -> TextProbe:
        """The model by the names of its columns."""
        return TextProbe(tuple(terms[self.kept]), self.idf, self.coef, self.intercept)


def fit_apply(train: Any, target: Bools, apply: Any, seed: int) -> tuple[Floats, Fitted] | None:
    """Probabilities of `target` for the rows of `apply`, from counts as `term_counts` gives them,
    and the model.

    Terms and document frequencies come from the training texts alone; None where none is common
    enough.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    rarest = 2 if train.shape[0] >= 50 else 1
    kept = np.flatnonzero(train.getnnz(axis=0) >= rarest)
    if not len(kept):
        return None
    weigh = TfidfTransformer(sublinear_tf=True)
    model = LogisticRegression(C=C, max_iter=1000, random_state=seed)
    model.fit(weigh.fit_transform(train[:, kept]), target)
    scores = model.predict_proba(weigh.transform(apply[:, kept]))[:, 1]
    idf, coef = (np.array(x, dtype=np.float64) for x in (weigh.idf_, model.coef_[0]))
    return np.asarray(scores, dtype=np.float64), Fitted(kept, idf, coef, float(model.intercept_[0]))
