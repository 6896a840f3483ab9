"""One fold of one head, whichever kind: fit, score, save. What a worker runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentinel.heads.config import HeadConfig
from sentinel.heads.snapshots import Plan, Snapshots
from sentinel.heads.tfidf import TfidfHead, fit_tfidf

if TYPE_CHECKING:
    from sentinel.heads.fit import OnEpoch
    from sentinel.heads.model import HeadModel
    from sentinel.heads.strategy import Strategy
    from sentinel.heads.tokens import Specials, Tokenized


@dataclass(frozen=True)
class FoldScores:
    """`rows` (k,) of the snapshots, float64 `logits` (k,), and which did not fit the window.

    The shared encoder's logits are (k, 2), in the order of `HEADS`.
    """

    rows: np.ndarray
    logits: np.ndarray
    truncated: np.ndarray
    metrics: dict[str, Any]


def fit_fold(
    snapshots: Snapshots,
    plan: Plan,
    config: HeadConfig,
    seed: int,
    *,
    folder: Path | None = None,
    device: str = "cpu",
    strategy: Strategy | None = None,
    checkpoints: Path | None = None,
    on_epoch: OnEpoch | None = None,
    tokens: Tokenized | None = None,
) -> FoldScores:
    """Fit the head of a plan and score its rows; with `folder`, save the head there.

    `tokens` are the ids of all snapshots where they are known; an encoder makes them otherwise.

    `strategy`, `checkpoints` and `on_epoch` are those of `sentinel.heads.fit.fit_head`; every
    process of a strategy gets the same scores, the first one saves.

    Raises HeadFailure when the fit cannot go on.
    """
    started = time.perf_counter()
    meta = {
        "head": plan.head,
        "fold": plan.fold,
        "seed": seed,
        "train_rows": len(plan.train),
        "stop_rows": len(plan.stop),
    }
    if config.kind == "tfidf":
        target = snapshots.target(plan.head)
        rows = np.concatenate([plan.train, plan.stop])  # nothing to stop early
        head = fit_tfidf(snapshots.text[rows], target[rows], config, seed)
        logits = head.logits(snapshots.text[plan.score])
        truncated = np.zeros(len(plan.score), dtype=bool)
        if folder is not None:
            head.save(folder, meta)
        extra: dict[str, Any] = {"terms": len(head.vocabulary)}
    else:
        from sentinel.heads.strategy import Strategy

        strategy = strategy or Strategy(device, config.dtype)
        logits, truncated, extra = _encoder(
            snapshots, plan, tokens, config, seed, folder, strategy, meta, checkpoints, on_epoch
        )
    seconds = round(time.perf_counter() - started, 3)
    metrics = {**meta, **extra, "scored_rows": len(plan.score), "seconds": seconds}
    return FoldScores(plan.score, logits, truncated, metrics)


def load_fold(folder: Path) -> Any:
    """The saved head of a fold: a `TfidfHead`, or (model, HeadConfig) of an encoder."""
    import json

    kind = json.loads((folder / "head.json").read_text(encoding="utf-8")).get("kind", "encoder")
    if kind == "tfidf":
        return TfidfHead.load(folder)[0]
    from sentinel.heads.model import load_head

    model, config, _ = load_head(folder)
    return model, config


def _encoder(
    snapshots: Snapshots,
    plan: Plan,
    tokens: Tokenized | None,
    config: HeadConfig,
    seed: int,
    folder: Path | None,
    strategy: Strategy,
    meta: dict[str, Any],
    checkpoints: Path | None,
    on_epoch: OnEpoch | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    from sentinel.heads.fit import fit_head, seeded, spread_scores
    from sentinel.heads.model import build_model, head_tokenizer, save_head
    from sentinel.heads.tokens import tokenize

    tokenizer, specials = head_tokenizer(config)
    if tokens is None:
        tokens = tokenize(tokenizer, snapshots.text.tolist())
    target = snapshots.targets(plan.head)
    with seeded(seed):
        model = build_model(config, tokenizer.get_vocab_size(), specials, target.shape[1])
    fit = fit_head(
        model,
        tokens,
        target,
        plan.train,
        plan.stop,
        specials,
        config,
        seed,
        groups=snapshots.episode_id,
        strategy=strategy,
        checkpoints=checkpoints,
        on_epoch=on_epoch,
    )
    scored = tokens.take(plan.score)
    with seeded(seed):
        if checkpoints is not None and strategy.world == 1:
            found = _resumed(strategy, fit.model, scored, specials, config, checkpoints)
        else:
            found = spread_scores(strategy, fit.model, scored, specials, config.max_score_tokens)
    truncated = scored.truncated(specials, config.max_score_tokens)
    cut = tokens.truncated(specials, config.max_train_tokens)[plan.train]
    if folder is not None and strategy.rank == 0:
        save_head(folder, fit.model, config, meta)
    extra: dict[str, Any] = {
        "best_epoch": fit.best_epoch,
        "history": fit.history,
        "resumed_after": fit.resumed,
        "workers": strategy.world,
        "strategy": strategy.name,
        "truncated_train": float(cut.mean()) if cut.size else 0.0,
        "truncated_score": float(truncated.mean()) if truncated.size else 0.0,
    }
    return found[:, 0] if found.shape[1] == 1 else found, truncated, extra


def _resumed(
    strategy: Strategy,
    model: HeadModel,
    tokens: Tokenized,
    specials: Specials,
    config: HeadConfig,
    checkpoints: Path,
) -> np.ndarray:
    """The scores, those kept that a killed pass of the same head has left."""
    from sentinel.heads.store import ScoreStore, head_key, score_new

    window = config.max_score_tokens
    outputs = int(model.out.out_features)
    store = ScoreStore(checkpoints / "scores.bin", head_key(model, specials, window), outputs)
    return score_new(model, tokens, specials, window, store, device=strategy.device)
