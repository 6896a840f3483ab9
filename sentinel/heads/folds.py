"""One fold of one head, whichever kind: fit, score, save. What a worker runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.heads.config import HeadConfig
from sentinel.heads.snapshots import Plan, Snapshots
from sentinel.heads.tfidf import TfidfHead, fit_tfidf


@dataclass(frozen=True)
class FoldScores:
    """`rows` (k,) of the snapshots, float64 `logits` (k,), and which did not fit the window."""

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
) -> FoldScores:
    """Fit the head of a plan and score its rows; with `folder`, save the head there.

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
    target = snapshots.target(plan.head)
    if config.kind == "tfidf":
        rows = np.concatenate([plan.train, plan.stop])  # nothing to stop early
        head = fit_tfidf(snapshots.text[rows], target[rows], config, seed)
        logits = head.logits(snapshots.text[plan.score])
        truncated = np.zeros(len(plan.score), dtype=bool)
        if folder is not None:
            head.save(folder, meta)
        extra: dict[str, Any] = {"terms": len(head.vocabulary)}
    else:
        logits, truncated, extra = _encoder(
            snapshots, plan, target, config, seed, folder, device, meta
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
    target: np.ndarray,
    config: HeadConfig,
    seed: int,
    folder: Path | None,
    device: str,
    meta: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    from sentinel.heads.fit import fit_head, seeded
    from sentinel.heads.model import build_model, head_tokenizer, save_head
    from sentinel.heads.score import score_tokens
    from sentinel.heads.tokens import tokenize

    tokenizer, specials = head_tokenizer(config)
    tokens = tokenize(tokenizer, snapshots.text.tolist())
    with seeded(seed):
        model = build_model(config, tokenizer.get_vocab_size(), specials)
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
        device=device,
    )
    scored = tokens.take(plan.score)
    with seeded(seed):
        logits = score_tokens(model, scored, specials, config.max_score_tokens, device=device)[:, 0]
    truncated = scored.truncated(specials, config.max_score_tokens)
    cut = tokens.truncated(specials, config.max_train_tokens)[plan.train]
    if folder is not None:
        save_head(folder, model, config, meta)
    extra = {
        "best_epoch": fit.best_epoch,
        "history": fit.history,
        "truncated_train": float(cut.mean()) if cut.size else 0.0,
        "truncated_score": float(truncated.mean()) if truncated.size else 0.0,
    }
    return logits, truncated, extra
