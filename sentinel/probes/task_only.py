"""Control: what the task alone tells, before the agent has done anything.

Terms of the task's text (TF–IDF, alone and in pairs) and the numbers the benchmark knows of it,
such as the depth of a goal; L2 logistic, C = 1, on the same parts as every other scorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.probes.cell import Cell
from sentinel.probes.logistic import C, sigmoid
from sentinel.probes.parts import Bools, Part, unfit
from sentinel.probes.text_probe import TextProbe

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TaskProbe:
    """The control as plain arrays: `keys` names the numbers, `mean`, `scale`, `coef` are (k,)
    float64; `text` holds the terms' share of the logit, and the intercept."""

    keys: tuple[str, ...]
    mean: Floats
    scale: Floats
    coef: Floats
    text: TextProbe

    def score(self, text: str, numbers: Mapping[str, float]) -> float:
        """f: probability of failure of a task; a number that is not known is put at its mean."""
        found = np.array([numbers.get(k, np.nan) for k in self.keys], dtype=np.float64)
        found = np.where(np.isnan(found), self.mean, found)
        logit = self.text.logit(text) + (found - self.mean) / self.scale @ self.coef
        return float(sigmoid(logit))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays; names as UTF-8, one a line."""
        names = np.frombuffer("\n".join(self.keys).encode(), dtype=np.uint8).copy()
        own: dict[str, NDArray[Any]] = {
            "keys": names,
            "mean": self.mean,
            "scale": self.scale,
            "weights": self.coef,
        }
        return own | self.text.arrays()

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> TaskProbe:
        """Inverse of `arrays`. Raises ValueError where they do not fit one another."""
        names = arrays["keys"].tobytes().decode()
        keys = tuple(names.split("\n")) if names else ()
        mean, scale, coef = arrays["mean"], arrays["scale"], arrays["weights"]
        if not len(keys) == len(mean) == len(scale) == len(coef):
            raise ValueError(f"{len(keys)} numbers, {len(coef)} coefficients")
        return cls(keys, mean, scale, coef, TextProbe.of(dict(arrays)))


def task_round(
    cell: Cell,
    alive: Bools,
    parts: Sequence[Part],
    models: dict[int, TaskProbe] | None = None,
) -> tuple[Floats, list[str]]:
    """Failure probabilities (E,) of the episodes alive, NaN elsewhere, and what went wrong.

    Later rounds differ from the first only in who is still there to be trained on. `models` takes
    the fitted ones, by part.
    """
    from sentinel.round_tfidf import term_counts

    found = term_counts(list(cell.goal))
    counts, terms = (None, np.array([], dtype=object)) if found is None else found
    keys = sorted({key for m in cell.meta for key in m})
    numbers = np.array([[m.get(k, np.nan) for k in keys] for m in cell.meta], dtype=np.float64)
    numbers = numbers.reshape(len(cell), len(keys))
    out = np.full(len(cell), np.nan)
    reasons = []
    for at, part in enumerate(parts):
        train, apply = part.train & alive, part.apply & alive
        if not apply.any():
            continue
        reason = unfit(cell.failed[train])
        if reason is None:
            target = cell.failed[train]
            out[apply], model = _fit(counts, terms, numbers, keys, train, target, apply)
            if models is not None:
                models[at] = model
        else:
            reasons.append(f"{part.name}: {reason}")
    return out, reasons


def _fit(
    counts: Any,
    terms: NDArray[np.object_],
    numbers: Floats,
    keys: Sequence[str],
    train: Bools,
    target: Bools,
    apply: Bools,
) -> tuple[Floats, TaskProbe]:
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    known = np.where(np.isnan(numbers[train]), 0.0, 1.0)
    size = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known > 0, numbers[train], 0.0).sum(axis=0) / size
    whole = np.where(np.isnan(numbers), mean, numbers)
    spread = whole[train].std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    # An empty block keeps the shape where a benchmark knows no numbers, or its texts no terms.
    columns = [csr_matrix((whole - mean) / scale)]
    names: tuple[str, ...] = ()
    idf = np.zeros(0)
    if counts is not None:
        kept = np.flatnonzero(counts[train].getnnz(axis=0) >= 2)
        if len(kept):
            weigh = TfidfTransformer(sublinear_tf=True).fit(counts[train][:, kept])
            columns.append(weigh.transform(counts[:, kept]))
            names, idf = tuple(terms[kept]), weigh.idf_
    X = hstack(columns).tocsr()
    width = len(keys)
    if not X.shape[1]:
        share = float(target.mean())
        constant = TextProbe((), idf, np.zeros(0), float(np.log(share / (1.0 - share))))
        nothing = np.zeros(0)
        probe = TaskProbe((), nothing, nothing, nothing, constant)
        return np.full(int(apply.sum()), share), probe
    model = LogisticRegression(C=C, max_iter=2000).fit(X[train], target)
    coef = model.coef_[0]
    text = TextProbe(names, idf, coef[width:].copy(), float(model.intercept_[0]))
    probe = TaskProbe(tuple(keys), mean, scale, coef[:width].copy(), text)
    return np.asarray(model.predict_proba(X[apply])[:, 1], dtype=np.float64), probe
