"""Margin sweep: the same draws searched again under other margins δ (the paper, "Margin Size
Sweep"). A margin steers the mean recall and promises nothing; the sweep shows at what rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel.cascade import driver
from sentinel.cascade.choose import requirement
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.play import outcome, play
from sentinel.cascade.policy import chosen
from sentinel.cascade.run import Draw, by_margin
from sentinel.cascade.table import from_table

MARGINS = ("0", "0.005", "0.01", "0.015", "0.02", "0.025", "0.03", "0.035", "0.04", "0.045", "0.05")


def with_margin(margin: str, margins: Sequence[str] = MARGINS) -> tuple[str, ...]:
    """`margins` and the one in use, ascending, each once.

    >>> with_margin("0.02", ("0", "0.05"))
    ('0', '0.02', '0.05')
    """
    known = {Fraction(m) for m in margins}
    more = () if Fraction(margin) in known else (margin,)
    return tuple(sorted((*margins, *more), key=Fraction))


def margin_rows(found: Draw, margins: Sequence[str] = MARGINS) -> list[dict[str, Any]]:
    """One row per target and margin of a draw: what its margin policy does on the test sample.

    `margin` as asked, `margin_used` after the cut for strict targets; `recall` None without test
    successes; `below` recall < target, compared exactly; `reason` why nothing is aborted. Gates,
    search table and samples are the draw's own. [] where the grid was too large to search.
    """
    searched, test = found.searched, found.sample.test
    if searched is None:
        return []
    played: dict[int | None, dict[str, Any]] = {}
    out = []
    for target in (t.target for t in found.targets):
        for margin in margins:
            asked = requirement(target, margin)
            choice = by_margin(searched, asked)
            vector = None if choice.index is None else searched.vector(choice.index)
            taus = chosen(found.thresholds, vector)
            if choice.index not in played:
                played[choice.index] = outcome(play(taus, test), test)
            figures = played[choice.index]
            n = figures["successes"]
            out.append(
                {
                    "seed": found.seed,
                    "target": target,
                    "margin": margin,
                    "margin_used": float(asked.margin),
                    "recall": figures["recall"],
                    "savings": figures["savings"],
                    "successes": n,
                    "kept": figures["kept"],
                    "below": figures["kept"] < n * Fraction(target) if n else None,
                    "no_op": all(tau is None for tau in taus),
                    "reason": choice.reason,
                }
            )
    return out


def margin_sweep(
    table: pa.Table, config: CascadeConfig, margins: Sequence[str] = MARGINS
) -> Iterator[dict[str, Any]]:
    """`margin_rows` of every draw of every cell and scorer, with `cell`, `scorer` and `mode`."""
    for rounds in from_table(table, config.gates, config.after_feedback):
        for found in driver.draws(rounds, config):
            for row in margin_rows(found, margins):
                yield {"cell": rounds.cell, "scorer": rounds.scorer, "mode": config.mode, **row}


def margin_summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean ± sd over seeds per cell, scorer, target and margin, in their order.

    `below` counts the seeds whose test recall is below the target, of `with_recall`; `no_op` those
    that abort nothing. sd None for one seed.
    """
    keys = ("cell", "scorer", "mode", "target", "margin")
    parts: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(tuple(row[k] for k in keys), []).append(row)
    out = []
    for key, part in parts.items():
        line: dict[str, Any] = dict(zip(keys, key, strict=True))
        line |= {"margin_used": part[0]["margin_used"], "seeds": len(part)}
        for name in ("recall", "savings"):
            values = [float(r[name]) for r in part if r[name] is not None]
            line[f"{name}_mean"] = float(np.mean(values)) if values else None
            line[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        line["with_recall"] = sum(r["recall"] is not None for r in part)
        line["below"] = sum(bool(r["below"]) for r in part)
        line["no_op"] = sum(r["no_op"] for r in part)
        line["reason"] = next((r["reason"] for r in part if r["reason"]), None)
        out.append(line)
    return out
