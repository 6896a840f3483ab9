"""From a `round_scores` table to the JSON that `sentinel cascade` prints and a run writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentinel import tables, user_tables
from sentinel.cascade.choose import Choice
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.gates import Thresholds
from sentinel.cascade.policy import NONE
from sentinel.cascade.promise import INDEPENDENT, stricter
from sentinel.cascade.run import Draw, Target, draw, rows, summary
from sentinel.cascade.search import memory, memory_text, refuse_memory
from sentinel.cascade.table import Rounds, from_table

VERSION = 1
NOTHING = (
    "nothing is promised in paper mode: test labels reach cross-fitted scores, and the margin "
    "steers the mean only"
)
MARGIN = (
    "nothing is promised: the margin steers the mean recall, and true recall falls below the "
    "target in about half of the draws"
)


def read(path: Path) -> pa.Table:
    """A `round_scores` table from Parquet or CSV; see `sentinel.user_tables.read`."""
    return user_tables.read(path, tables.ROUND_SCORES)


Lines = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""Rows over all seeds by cell and scorer, drawn elsewhere (`sentinel.cascade.sweep.lines`)."""


def cascade(
    table: pa.Table, config: CascadeConfig | None = None, lines: Lines | None = None
) -> dict[str, Any]:
    """The printed object: mode, settings, memory of the search, and one entry per cell and scorer.

    With `lines` the seeds are not drawn again; the object is the same to the byte.

    Raises UserError for a faulty table or a search that would not fit into memory, before it is
    allocated.
    """
    config = config or CascadeConfig()
    if config.method != "fixed-sequence":
        refuse_memory(len(config.grid), config.gates, config.memory)
    found = from_table(table, config.gates, config.after_feedback)
    return {
        "version": VERSION,
        "mode": config.mode,
        "settings": config.to_dict(),
        "search": memory_text(len(config.grid), config.gates),
        "search_bytes": memory(len(config.grid), config.gates),
        "searched": memory(len(config.grid), config.gates) <= config.memory,
        "cells": [
            cell(rounds, config, None if lines is None else lines[rounds.cell, rounds.scorer])
            for rounds in found
        ],
    }


def seeds(rounds: Rounds, config: CascadeConfig) -> range:
    """The seeds to draw splits by; a table with its own pools has only one."""
    own = bool((rounds.pool != "").any())
    return range(config.seed, config.seed + (1 if own else config.seeds))


def draws(rounds: Rounds, config: CascadeConfig) -> Iterator[Draw]:
    """One draw per seed."""
    for seed in seeds(rounds, config):
        yield draw(rounds, config, seed)


def cell(
    rounds: Rounds, config: CascadeConfig, known: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """One cell under one scorer: the first draw in full, and mean ± sd where there are more.

    `known`: the rows of all draws, where they were drawn elsewhere.
    """
    many = draws(rounds, config)
    first = next(many)
    lines = rows(first) if known is None else [dict(line) for line in known]
    for other in many if known is None else ():
        lines += rows(other)
    parts = first.sample
    drawn = len({line["seed"] for line in lines})
    return {
        "cell": rounds.cell,
        "scorer": rounds.scorer,
        "mode": config.mode,
        "seed": first.seed,
        "episodes_without_outcome": parts.unlabelled,
        "samples": {
            name: {
                "episodes": len(part),
                "successes": part.successes,
                "tasks": len(set(part.unit(config.unit))),
            }
            for name, part in (
                ("calibration", parts.calibration),
                ("search", parts.search),
                ("testing", parts.testing),
                ("certification", parts.certification),
                ("test", parts.test),
            )
        },
        "one_rollout_per_task": not parts.repeated,
        "gates": gates(first.thresholds, config, parts.repeated),
        "alive": [int(rounds.alive[rounds.labelled, r].sum()) for r in range(rounds.gates)],
        "targets": [_target(t, first, config) for t in first.targets],
        "seeds": {"n": drawn, "rows": lines, "summary": summary(lines)} if drawn > 1 else None,
    }


def gates(thresholds: Thresholds, config: CascadeConfig, repeated: bool) -> dict[str, Any]:
    """Thresholds per gate and budget, what each alone means, and what closed gates would need."""
    if config.gate == "given":
        text = "thresholds given by the user: what each gate keeps alone is not known"
    elif config.gate == "conformal":
        text = "each gate keeps its budget on average over calibration draws, not in each"
    else:
        text = (
            f"each gate alone, at a budget fixed beforehand, keeps that share of the successes it "
            f"reads with confidence {100 * (1 - float(config.alpha)):.6g} %"
        )
    if config.gate == "given":
        pass
    elif config.mode == "paper":
        text = f"{INDEPENDENT} and unseen by the scorer: {text}"
    elif repeated:
        text = f"{INDEPENDENT}: {text}"
    return {
        "kind": thresholds.kind,
        "alpha": config.alpha,
        "successes": list(thresholds.n),
        "grid": list(thresholds.grid),
        "thresholds": [
            [NONE if tau == float("inf") else float(tau) for tau in row]
            for row in thresholds.values
        ],
        "closed": thresholds.missing(),
        "text": text,
    }


def _target(found: Target, whole: Draw, config: CascadeConfig) -> dict[str, Any]:
    asked, promise = found.requirement, found.promise
    sample = whole.sample
    if promise is not None:
        have, lost = promise.successes, promise.successes - promise.kept
        guarantee = promise.to_dict()
    else:
        have = sample.search.successes
        kept = found.choice.kept if found.choice is not None else None
        lost = 0 if kept is None else have - kept
        guarantee = {
            "method": config.method,
            "guaranteed": False,
            "text": NOTHING if config.mode == "paper" else MARGIN,
        }
    return {
        "target": found.target,
        "mode": config.mode,
        "method": config.method,
        "policy": found.policy.to_dict(),
        "policy_hash": found.policy.hash(),
        "aborts_nothing": found.policy.aborts_nothing,
        "reason": found.policy.reason,
        "margin": {
            "asked": config.margin,
            "used": float(asked.margin),
            "reduced": asked.reduced,
            "recall": float(asked.recall),
            "successes": None if asked.reason else asked.successes(sample.search.successes),
            "reason": asked.reason,
        },
        "search": _choice(found.choice, whole),
        "test": found.test,
        "others": found.others,
        "guarantee": guarantee,
        "stricter": stricter(found.target, have, config.promise, lost),
        "needs": _needs(found, config),
    }


def _choice(choice: Choice | None, whole: Draw) -> dict[str, Any] | None:
    if choice is None or whole.searched is None:
        return None
    n, cost = choice.successes, whole.searched.cost
    return {
        "needed": choice.needed,
        "successes": n,
        "kept": choice.kept,
        "recall": choice.kept / n if choice.kept is not None and n else None,
        "saved": choice.saved,
        "savings": choice.saved / cost if choice.saved is not None and cost else None,
    }


def _needs(found: Target, config: CascadeConfig) -> int | None:
    """Independent successes this very target needs, with none lost, before it can be promised."""
    from sentinel.cascade.planner import successes_needed

    return successes_needed(Fraction(found.target), config.promise, 0)
