"""One made-up fit as data: the same in this process and in workers that share it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.heads.config import HeadConfig
from sentinel.heads.tokens import Specials, Tokenized

SPECIALS = Specials((1,), (2,), 0)
CONFIG = HeadConfig(
    width=32,
    layers=1,
    epochs=5,
    batch_size=32,
    learning_rate=1e-3,
    max_train_tokens=24,
    max_score_tokens=24,
    dropout=0.0,
    token_dropout=0.1,
    prefixes=None,
    patience=9,
)
"""Fifty steps: 320 training rows, ten batches an epoch."""


def made_rows(n: int = 400) -> tuple[Tokenized, np.ndarray]:
    """Rows of random ids of uneven lengths; a row is positive iff id 7 occurs, a third are."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(10, 40, rng.integers(3, 30)) for _ in range(n)]
    target = (np.arange(n) % 3 == 0).astype(float)
    for row, positive in zip(rows, target, strict=True):
        if positive:
            row[rng.integers(len(row))] = 7
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    return Tokenized(np.concatenate(rows).astype(np.int32), starts), target


def shared_fit(settings: dict[str, Any], strategy: Any = None) -> dict[str, Any]:
    """Fit under `settings` (of HeadConfig): losses, history, logits of all rows.

    `checkpoints`: their folder. `kill_at`: (step, rank) before which this process kills itself,
    with `kill_once`, a file, once only.
    """
    from sentinel.heads.fit import fit_head, seeded, spread_scores
    from sentinel.heads.model import build_model
    from sentinel.heads.strategy import Strategy

    config = HeadConfig.of(CONFIG.to_dict() | settings)
    strategy = strategy or Strategy("cpu", config.dtype)
    tokens, target = made_rows()
    target = np.stack([target, np.where(np.arange(400) < 200, 1 - target, np.nan)], axis=1)
    with seeded(3):
        model = build_model(config, 64, SPECIALS, 2)
    step, kill_at = strategy.step, settings.get("kill_at")
    steps = [0]

    def counted(rate: float) -> None:
        if kill_at is not None and (steps[0], strategy.rank) == tuple(kill_at):
            once = settings.get("kill_once")
            if once is None or not Path(once).exists():
                if once is not None:
                    Path(once).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        steps[0] += 1
        step(rate)

    strategy.step = counted
    folder = settings.get("checkpoints")
    train, stop = np.arange(320), np.arange(320, 400)
    fit = fit_head(
        model,
        tokens,
        target,
        train,
        stop,
        SPECIALS,
        config,
        3,
        strategy=strategy,
        checkpoints=None if folder is None else Path(folder),
    )
    return {
        "losses": fit.losses,
        "history": fit.history,
        "resumed": fit.resumed,
        "logits": spread_scores(strategy, fit.model, tokens, SPECIALS, 24),
    }


def fit_in_worker(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Each of `settings["fits"]` by the processes of an open group."""
    from cluster.ray_train import strategy_of

    return [
        shared_fit(one, strategy_of({"zero_stage": None, "dtype": "float32"} | one, "cpu"))
        for one in settings["fits"]
    ]


def alone(**settings: Any) -> dict[str, Any]:
    """The fit in one process."""
    return shared_fit(settings)
