"""One probe gate of a live monitor against scikit-learn's pipeline on one row: at most 50 µs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
from harness import Line, check_baseline, main, seconds, summary
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sentinel.cascade.policy import CascadePolicy
from sentinel.probes.export import Probes
from sentinel.probes.logistic import fit_logistic

WIDTH = 3584
"""A 7 B model's hidden state."""
GIVEN_US, BAR_US = 502.0, 50.0


def bench(tiny: bool) -> Iterator[Line]:
    """Microseconds of a gate, scored and decided, and how many times as fast that is."""
    width, calls, pairs = (32, 20, 2) if tiny else (WIDTH, 2000, 9)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200 if tiny else 400, width))
    y = X[:, 0] + rng.standard_normal(len(X)) > 0
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=5000)).fit(X, y)
    state = X[7].astype(np.float16)
    row = state.astype(np.float64)[None]
    probes = Probes({"scorer": "probe"}, {(0, 1): fit_logistic(X, y)})
    policy = CascadePolicy("c", "probe", "strict", "margin", "0.9", None, (0.9,))

    def baseline() -> bool:
        return bool(plain.predict_proba(row)[0, 1] > 0.9)

    def gate() -> bool:
        return policy.aborts(1, probes.score(1, state))

    assert baseline() == gate()
    a, b = [], []
    for i in range(pairs):  # A B B A …
        sides: list[tuple[list[float], Callable[[], bool]]] = [(a, baseline), (b, gate)]
        for times, side in sides if i % 2 == 0 else reversed(sides):
            times.append(1e6 * seconds(lambda side=side: [side() for _ in range(calls)]) / calls)
    if not tiny:
        # Only a slow one would flatter: a fast machine has a fast baseline too.
        taken = max(summary(a).median, GIVEN_US / 2)
        check_baseline("scikit-learn's gate in µs", taken, GIVEN_US)
    yield Line("probe_gate", summary(b), "us", at_most=BAR_US)
    yield Line("probe_gate_speedup", summary(x / z for x, z in zip(a, b, strict=True)))


if __name__ == "__main__":
    sys.exit(main(__doc__, bench))
