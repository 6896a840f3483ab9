"""Control: what the task alone tells, before the agent has done anything.

Terms of the task's text (TF–IDF, alone and in pairs) and the numbers the benchmark knows of it,
such as the depth of a goal; L2 logistic, C = 1, on the same parts as every other scorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.probes.cell import Cell
from sentinel.probes.logistic import C
from sentinel.probes.parts import Bools, Part, unfit


def task_round(
    cell: Cell, alive: Bools, parts: Sequence[Part]
) -> tuple[NDArray[np.float64], list[str]]:
    """Failure probabilities (E,) of the episodes alive, NaN elsewhere, and what went wrong.

    Later rounds differ from the first only in who is still there to be trained on.
    """
    from sentinel.round_tfidf import term_counts

    found = term_counts(list(cell.goal))
    counts = None if found is None else found[0]
    keys = sorted({key for m in cell.meta for key in m})
    numbers = np.array([[m.get(k, np.nan) for k in keys] for m in cell.meta], dtype=np.float64)
    numbers = numbers.reshape(len(cell), len(keys))
    out = np.full(len(cell), np.nan)
    reasons = []
    for part in parts:
        train, apply = part.train & alive, part.apply & alive
        if not apply.any():
            continue
        reason = unfit(cell.failed[train])
        if reason is None:
            out[apply] = _fit(counts, numbers, train, cell.failed[train], apply)
        else:
            reasons.append(f"{part.name}: {reason}")
    return out, reasons


def _fit(
    counts: Any, numbers: NDArray[np.float64], train: Bools, target: Bools, apply: Bools
) -> NDArray[np.float64]:
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    known = np.where(np.isnan(numbers[train]), 0.0, 1.0)
    size = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known > 0, numbers[train], 0.0).sum(axis=0) / size
    whole = np.where(np.isnan(numbers), mean, numbers)
    spread = whole[train].std(axis=0)
    scaled = (whole - mean) / np.where(spread > 0, spread, 1.0)
    # An empty block keeps the shape where a benchmark knows no numbers, or its texts no terms.
    columns = [csr_matrix(scaled)]
    if counts is not None:
        kept = np.flatnonzero(counts[train].getnnz(axis=0) >= 2)
        if len(kept):
            weigh = TfidfTransformer(sublinear_tf=True).fit(counts[train][:, kept])
            columns.append(weigh.transform(counts[:, kept]))
    X = hstack(columns).tocsr()
    if not X.shape[1]:
        return np.full(int(apply.sum()), target.mean())
    model = LogisticRegression(C=C, max_iter=2000).fit(X[train], target)
    return np.asarray(model.predict_proba(X[apply])[:, 1], dtype=np.float64)
