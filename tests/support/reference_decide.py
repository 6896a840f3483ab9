"""Brute-force decision layer: plain loops over exact fractions, written from the rules alone.

Rows are dictionaries of `prefix_scores`. Nothing of the package is imported; speed is no concern.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
SYSTEMS = ("vanilla", "gate", "full", "early-exit", "chow")


class Episode:
    """One question: its snapshots in order of t."""

    def __init__(self, rows: list[Row]) -> None:
        rows = sorted(rows, key=lambda r: r["t"])
        first = rows[0]
        self.id, self.group, self.pool = first["episode_id"], first["group"], first["pool"]
        self.T = first["T"]
        self.answerable, self.answered = first["answerable"], first["answered"]
        self.labelled = not (self.answered and self.answerable and first["correct"] is None)
        self.good = bool(self.answered and self.answerable and first["correct"])
        self.p_ans = [_number(r["p_answerable"]) for r in rows]
        self.p_cor = [_number(r["p_correct"]) for r in rows]


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def episodes(rows: list[Row]) -> list[Episode]:
    """Group rows by episode, in order of ids."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["episode_id"], []).append(row)
    return [Episode(found[name]) for name in sorted(found)]


def theta(calibration: Sequence[Episode], budget: str) -> float | None:
    """The (k+1)-th smallest of the minima over t of every answerable episode; None: no gate."""
    minima = []
    for e in calibration:
        if e.answerable:
            seen = [p for p in e.p_ans if p is not None]
            minima.append(min(seen) if seen else math.inf)
    if not minima:
        return None
    k = (Fraction(budget) * len(minima)).__floor__()
    value = sorted(minima)[k]
    return None if value == math.inf else value


def isotonic(pairs: list[tuple[float, bool]]) -> Callable[[float | None], Fraction | float | None]:
    """Max–min formula over distinct scores, as exact means; linear in the logit between scores."""
    if len({y for _, y in pairs}) < 2:
        return lambda p: None
    xs = sorted({x for x, _ in pairs})
    ones = [sum(y for x, y in pairs if x == v) for v in xs]
    size = [sum(1 for x, _ in pairs if x == v) for v in xs]
    values = []
    for i in range(len(xs)):
        worst = [
            min(Fraction(sum(ones[j : k + 1]), sum(size[j : k + 1])) for k in range(i, len(xs)))
            for j in range(i + 1)
        ]
        values.append(max(worst))

    def read(p: float | None) -> Fraction | float | None:
        if p is None:
            return None
        if p <= xs[0]:
            return values[0]
        if p >= xs[-1]:
            return values[-1]
        if p in xs:
            return values[xs.index(p)]
        after = next(i for i, x in enumerate(xs) if x > p)
        low, high = values[after - 1], values[after]
        if low == high:
            return low
        a, b, c = (_logit(v) for v in (xs[after - 1], xs[after], p))
        return float(low) + (float(high) - float(low)) * (c - a) / (b - a)

    return read


def _logit(p: float) -> float:
    if p == 0 or p == 1:
        return 745.0 if p else -745.0
    return math.log(p) - math.log1p(-p)


class Reference:
    """Everything fitted on the calibration pool of `rows`."""

    def __init__(self, rows: list[Row], budget: str) -> None:
        self.all = episodes(rows)
        everyone = [e for e in self.all if e.pool == "calibration"]
        self.theta = theta(everyone, budget)
        self.calibration = [e for e in everyone if e.labelled]
        self.prefix = isotonic(
            [(p, e.good) for e in self.calibration for p in e.p_cor if p is not None]
        )
        self.delivery = isotonic(
            [
                (e.p_cor[-1], e.good)
                for e in self.calibration
                if e.answered and e.p_cor[-1] is not None
            ]
        )

    def play(
        self, e: Episode, system: str, lam: Fraction, s: Any = "never"
    ) -> tuple[int, str | None, bool]:
        """(exit time, what fired, delivered) of one episode."""
        gate = system in ("gate", "full", "early-exit")
        stop = system == "early-exit"
        for t in range(e.T + 1):
            p = e.p_ans[t]
            if gate and self.theta is not None and p is not None and p < self.theta:
                return t, "gate", False
            if stop and t < e.T and s != "never":
                value = self.prefix(e.p_cor[t])
                if s == "always" or (value is not None and value < s):
                    return t, "stop", False
        if not e.answered:
            return e.T, None, False
        if system in ("full", "early-exit", "chow"):
            value = self.delivery(e.p_cor[e.T])
            tau = lam / (1 + lam)
            if value is None or not value >= tau:
                return e.T, "chow", False
        return e.T, None, True

    def score(self, pool: list[Episode], system: str, lam: Fraction, s: Any = "never") -> Any:
        """(sum of RS(λ), steps saved) over a pool, exact."""
        total, saved = Fraction(0), 0
        for e in pool:
            exit_time, _, delivered = self.play(e, system, lam, s)
            saved += e.T - exit_time
            if delivered:
                total += 1 if e.good else -lam
            elif not e.answerable:
                total += 1
        return total, saved

    def stop(self, lam: Fraction) -> Any:
        """(s, sum of RS, steps saved): best RS, then most steps saved, then the smallest s."""
        values = {
            v
            for e in self.calibration
            for t in range(e.T)
            if (v := self.prefix(e.p_cor[t])) is not None
        }
        best: Any = None
        for s in ["never", *sorted(values), "always"]:
            found = self.score(self.calibration, "early-exit", lam, s)
            if best is None or found > best[1]:
                best = (s, found)
        return best[0], *best[1]
