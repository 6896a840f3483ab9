"""Scores of every round under one scorer: a model per round, trained on the episodes alive at it.

Every scorer gets the same parts, so that a difference between two of them is never one of folds.
`probe`: hidden state; `surface`: five features; `stacking`: both; `heads`: the Sentinel correctness
head on the text; `tfidf`: its cheaper variant, one TF–IDF per round; controls: `task` sees nothing
but the task, `random` noise of the probe's width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UserError
from sentinel.probes.cell import Cell
from sentinel.probes.logistic import LogisticProbe, fit_logistic
from sentinel.probes.parts import Part, Split, round_facts, unfit
from sentinel.probes.surface import SURFACE
from sentinel.probes.task_only import TaskProbe, task_round
from sentinel.probes.text_probe import TextProbe

SCORERS = ("probe", "surface", "stacking", "heads", "tfidf", "task", "random")
NEED_ACTIVATIONS = ("probe", "stacking")
CONTROLS = ("task", "random")
PLAIN = ("probe", "surface", "stacking", "random")
"""Scorers that are logistic models of a row of numbers."""
RANDOM_WIDTH = 64
_STREAM = 7
Floats = NDArray[np.float64]
Models = dict[tuple[int, int], LogisticProbe]
TextModels = dict[tuple[int, int], TextProbe]
TaskModels = dict[tuple[int, int], TaskProbe]


@dataclass(frozen=True)
class ScorerConfig:
    """`seed` of folds and pools, and of what a scorer draws; `heads`: settings of the text heads
    (`HeadConfig`), which a worker gets as a plain mapping; `device` of an encoder."""

    seed: int = 0
    after_feedback: bool = False
    heads: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    folder: Path | None = None
    """Where fitted text heads are kept; None keeps none."""


@dataclass(frozen=True)
class Scored:
    """`score` (E, G) failure probabilities, NaN where there is none; `facts` JSON-able: how it was
    split, and per round who was scored, the AUROC, and why a model is missing; `models` by (part,
    round) for scorers that are plain coefficients, `texts` for `tfidf`, `tasks` for `task`."""

    scorer: str
    split: Split
    score: Floats
    facts: dict[str, Any]
    models: Models
    texts: TextModels = field(default_factory=dict)
    tasks: TaskModels = field(default_factory=dict)


def score(cell: Cell, cut: Split, scorer: str, config: ScorerConfig | None = None) -> Scored:
    """Score rounds 1…G of every episode that a part applies to.

    A model whose training episodes all ended alike scores nothing, and the reason is recorded by
    part and round; so is the number of episodes without a score. Raises UserError for an unknown
    scorer, for one that needs activations where the cell has none, and where no round has any model
    (such as fit tasks that all ended alike).
    """
    config = config or ScorerConfig()
    if scorer not in SCORERS:
        raise UserError(f"unknown scorer {scorer}", f"valid: {', '.join(SCORERS)}")
    if scorer in NEED_ACTIVATIONS and cell.vectors is None:
        raise UserError(
            f"scorer {scorer} of {cell.name} needs hidden states, and there are none",
            "run the stage activations, or leave the scorer out of cascade.scorers",
        )
    models: Models = {}
    fitted: TextModels = {}
    tasks: TaskModels = {}
    columns: list[Floats] = []
    reasons: list[list[str]] = []
    if scorer == "heads":
        from sentinel.probes.text_heads import head_scores

        columns, reasons = head_scores(cell, cut, config)
    for r in range(1, cell.gates + 1) if scorer != "heads" else ():
        alive = cell.alive(r, config.after_feedback)
        if scorer == "tfidf":
            from sentinel.round_tfidf import score_round

            texts = [t[r - 1] for t, on in zip(cell.texts, alive, strict=True) if on]
            found_models: dict[int, TextProbe] = {}
            column, why = score_round(
                texts, alive, cell.failed, cut.parts, config.seed, found_models
            )
            fitted |= {(k, r): model for k, model in found_models.items()}
        elif scorer == "task":
            found_tasks: dict[int, TaskProbe] = {}
            column, why = task_round(cell, alive, cut.parts, found_tasks)
            tasks |= {(k, r): model for k, model in found_tasks.items()}
        else:
            column, why = _plain(cell, cut.parts, scorer, r, alive, config, models)
        columns.append(column)
        reasons.append(why)
    found = np.stack(columns, axis=1)
    if np.isnan(found).all():
        why = next((w for w in reasons if w), ["no episode can be scored"])
        raise UserError(
            f"scorer {scorer} of {cell.name} has no score in {cut.mode} mode at any round: "
            f"{why[0]}",
            "collect more tasks, or another cascade.seed",
        )
    known, failed = cell.known, cell.failed
    rounds = [
        round_facts(
            r,
            cell.alive(r, config.after_feedback),
            known,
            failed,
            found[:, r - 1],
            cut,
            reasons[r - 1],
        )
        for r in range(1, cell.gates + 1)
    ]
    facts = {
        **cut.facts,
        "mode": cut.mode,
        "seed": config.seed,
        "scorer": scorer,
        "layer": cell.layer if scorer in NEED_ACTIVATIONS else None,
        "episodes": len(cell),
        "unlabelled": int((~known).sum()),
        "dropped": dict(cell.dropped),
        "auroc_on": cut.auroc_on,
        "rounds": rounds,
    }
    return Scored(scorer, cut, found, facts, models, fitted, tasks)


def _plain(
    cell: Cell,
    parts: tuple[Part, ...],
    scorer: str,
    r: int,
    alive: NDArray[np.bool_],
    config: ScorerConfig,
    models: Models,
) -> tuple[Floats, list[str]]:
    X = matrix(cell, scorer, r, config.seed)
    surface = surface_columns(scorer, X.shape[1])
    # A hidden state that is not there cannot be replaced; an unknown surface feature is, by its
    # training mean.
    whole = ~np.isnan(X[:, ~surface]).any(axis=1)
    out = np.full(len(cell), np.nan)
    reasons = []
    for k, part in enumerate(parts):
        train, apply = part.train & alive & whole, part.apply & alive & whole
        if not apply.any():
            continue
        reason = unfit(cell.failed[train])
        if reason is not None:
            reasons.append(f"{part.name}: {reason}")
            continue
        probe = fit_logistic(filled(X[train], surface), cell.failed[train])
        models[k, r] = probe
        out[apply] = probe.score(filled(X[apply], surface, probe.mean))
    return out, reasons


def matrix(cell: Cell, scorer: str, r: int, seed: int) -> Floats:
    """Features of round r, (E, d): hidden state, then the five surface features."""
    if scorer == "random":
        d = RANDOM_WIDTH if cell.vectors is None else cell.vectors.shape[2]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM, r])))
        return rng.standard_normal((len(cell), d))
    blocks = []
    if scorer in NEED_ACTIVATIONS:
        assert cell.vectors is not None
        blocks.append(cell.vectors[:, r - 1].astype(np.float64))
    if scorer in ("surface", "stacking"):
        blocks.append(cell.surface[:, r - 1])
    return np.concatenate(blocks, axis=1)


def surface_columns(scorer: str, width: int) -> NDArray[np.bool_]:
    """Which of a scorer's `width` columns are surface features, (d,)."""
    out = np.zeros(width, dtype=bool)
    if scorer in ("surface", "stacking"):
        out[width - len(SURFACE) :] = True
    return out


def filled(X: Floats, surface: NDArray[np.bool_], mean: Floats | None = None) -> Floats:
    """Unknown surface features at their training mean: of X itself, or the `mean` (d,) given.

    A column that is unknown in all of X (log-probabilities of an API; at round 1 the mean over
    earlier rounds) is constant 0, and so carries no weight.
    """
    unknown = np.isnan(X) & surface
    if mean is None:
        count = np.maximum((~np.isnan(X)).sum(axis=0), 1)
        mean = np.where(np.isnan(X), 0.0, X).sum(axis=0) / count
    return np.where(unknown, mean, X)
