"""Training of one head: a plain torch function of arrays, the same on one worker or several.

A torch room: imported inside functions only.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.model import HeadModel
from sentinel.heads.score import score_tokens
from sentinel.heads.tokens import Specials, Tokenized

BUCKET = 16
"""Batches per bucket: rows are shuffled, then sorted by length within a bucket."""


@dataclass
class Fit:
    """The kept state of a training run, and one mapping per epoch.

    Kept is the last epoch that is not clearly worse than the best (see `_slack`).
    """

    model: HeadModel
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0


def fit_head(
    model: HeadModel,
    tokens: Tokenized,
    targets: np.ndarray,
    train: np.ndarray,
    stop: np.ndarray,
    specials: Specials,
    config: HeadConfig,
    seed: int,
    *,
    groups: np.ndarray | None = None,
    device: str = "cpu",
) -> Fit:
    """Train a head; AdamW, linear warm-up and decay, clipped gradients, early stopping.

    `targets` is (n,) or (n, outputs) in [0, 1]; NaN masks a row out of that output's loss. `train`
    and `stop` are row indices; without early-stopping rows the last epoch is kept. `groups` (n,)
    names the episode of each row, for `config.prefixes`. Same seed, same result on one device.

    Raises HeadFailure when the loss is not finite.
    """
    targets = np.asarray(targets, dtype=np.float32).reshape(len(tokens), -1)
    weights = class_weights(targets[train], config.class_weights)
    rng = np.random.Generator(np.random.PCG64(seed))
    model.to(device)
    optimiser = torch.optim.AdamW(_decayed(model, config.weight_decay), lr=config.learning_rate)
    per_epoch = len(
        _epoch_rows(train, groups, config.prefixes, np.random.Generator(np.random.PCG64(0)))
    )
    total = max(1, config.epochs * -(-per_epoch // config.batch_size))
    warm = max(1, round(config.warmup * total))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm, max(0.0, (total - step) / (total - warm + 1))),
    )
    fit = Fit(model)
    slack = _slack(targets[stop], None if groups is None else groups[stop], config.stop_on)
    best, kept = -np.inf, model.state_dict()
    lengths = tokens.lengths(specials, config.max_train_tokens)
    with seeded(seed):
        for epoch in range(1, config.epochs + 1):
            started, seen, losses = time.perf_counter(), 0, []
            model.train()
            rows = _epoch_rows(train, groups, config.prefixes, rng)
            for batch in bucketed(rows, lengths, config.batch_size, rng):
                ids, mask = tokens.batch(batch, specials, config.max_train_tokens)
                shown = hide(torch.from_numpy(ids), specials, config.token_dropout)
                logits = model(shown.to(device), torch.from_numpy(mask).to(device))
                loss = masked_loss(logits, torch.from_numpy(targets[batch]).to(device), weights)
                value = float(loss.detach())
                if not np.isfinite(value):
                    raise HeadFailure(f"the loss became {value} in epoch {epoch}")
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
                optimiser.step()
                schedule.step()
                losses.append(value * len(batch))
                seen += int(mask.sum())
            record: dict[str, Any] = {
                "epoch": epoch,
                "loss": sum(losses) / len(rows),
                "tokens_per_second": round(seen / (time.perf_counter() - started)),
            }
            fit.history.append(record)
            if len(stop):
                record |= evaluate(model, tokens, targets, stop, specials, config, weights, device)
            value = _criterion(record, config.stop_on) if len(stop) else float(epoch)
            best = max(best, value)
            if value >= best - slack:
                kept = copy.deepcopy(model.state_dict())
                fit.best_epoch = epoch
            elif epoch - fit.best_epoch >= config.patience:
                break
    if not fit.best_epoch:
        raise HeadFailure("no epoch gave a finite loss on the early-stopping rows")
    model.load_state_dict(kept)
    model.eval()
    return fit


def evaluate(
    model: HeadModel,
    tokens: Tokenized,
    targets: np.ndarray,
    rows: np.ndarray,
    specials: Specials,
    config: HeadConfig,
    weights: np.ndarray,
    device: str,
) -> dict[str, float | None]:
    """Loss and mean AUROC (null where a target has one class) of the early-stopping rows."""
    from sklearn.metrics import roc_auc_score

    logits = score_tokens(
        model, tokens.take(rows), specials, config.max_train_tokens, device=device
    )
    target = targets[rows]
    loss = masked_loss(torch.from_numpy(logits).float(), torch.from_numpy(target), weights)
    areas = []
    for column in range(target.shape[1]):
        known = ~np.isnan(target[:, column])
        if len(np.unique(target[known, column])) == 2:
            areas.append(roc_auc_score(target[known, column], logits[known, column]))
    return {"stop_loss": float(loss), "stop_auroc": float(np.mean(areas)) if areas else None}


def hide(ids: torch.Tensor, specials: Specials, share: float) -> torch.Tensor:
    """The ids with a share of them, specials excepted, replaced by the padding id.

    A few hundred episodes are learnt by heart otherwise; positions and mask stay as they are.
    """
    if not share:
        return ids
    kept = torch.tensor(specials.before + specials.after, dtype=ids.dtype)
    hidden = (torch.rand(ids.shape) < share) & ~torch.isin(ids, kept)
    return torch.where(hidden, torch.full_like(ids, specials.pad), ids)


def masked_loss(logits: torch.Tensor, targets: torch.Tensor, weights: np.ndarray) -> torch.Tensor:
    """Weighted binary cross-entropy, mean over the batch; NaN targets count nothing."""
    known = ~torch.isnan(targets)
    target = torch.where(known, targets, torch.zeros_like(targets))
    scale = torch.from_numpy(weights).to(logits)
    weight = torch.where(target > 0.5, scale[1], scale[0]) * known
    loss = binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (loss * weight).sum() / known.sum().clamp(min=1)


def class_weights(targets: np.ndarray, how: str) -> np.ndarray:
    """(2, outputs) weights of the negative and positive class; `balanced`: mean 1 over the rows."""
    if how == "none":
        return np.ones((2, targets.shape[1]), dtype=np.float32)
    positive, known = np.nansum(targets, axis=0), (~np.isnan(targets)).sum(axis=0)
    counts = np.stack([known - positive, positive])
    return (known / np.maximum(2.0 * counts, 1.0)).astype(np.float32)


def bucketed(
    rows: np.ndarray, lengths: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Batches of `size` rows of similar length, in random order; every row exactly once."""
    rows = rng.permutation(rows)
    batches = []
    for start in range(0, len(rows), BUCKET * size):
        chunk = rows[start : start + BUCKET * size]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    for at in rng.permutation(len(batches)):
        yield batches[at]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """One thread and a private random state: the same result beside whatever else runs."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _epoch_rows(
    train: np.ndarray, groups: np.ndarray | None, prefixes: int | None, rng: np.random.Generator
) -> np.ndarray:
    """All training rows, or a uniform share of them: `prefixes` per episode on average."""
    if prefixes is None or groups is None:
        return train
    wanted = min(len(train), prefixes * len(np.unique(groups[train])))
    return rng.choice(train, size=wanted, replace=False)


def _criterion(record: dict[str, Any], stop_on: str) -> float:
    if stop_on == "auroc" and record["stop_auroc"] is not None:
        # ties (many, on a few groups) go to the lower loss
        return float(record["stop_auroc"]) - 1e-6 * float(record["stop_loss"])
    return -float(record["stop_loss"])


def _slack(targets: np.ndarray, groups: np.ndarray | None, stop_on: str) -> float:
    """How far below the best an epoch may be and still replace it: one standard error of AUROC.

    √((n₁+n₀+1) / (12 n₁ n₀)) in episodes. A split of a few dozen episodes cannot tell epochs apart
    more finely, and letting its noise choose would mostly choose an early one.
    """
    if stop_on != "auroc" or not len(targets):
        return 0.0
    known = ~np.isnan(targets).any(axis=1)
    first = np.arange(len(targets))
    if groups is not None:
        first = np.unique(groups, return_index=True)[1]
    target = targets[first[known[first]], 0] > 0.5
    positive, negative = int(target.sum()), int((~target).sum())
    if not positive or not negative:
        return 0.0
    return float(np.sqrt((positive + negative + 1) / (12 * positive * negative)))


def _decayed(model: HeadModel, decay: float) -> list[dict[str, Any]]:
    """No weight decay on vectors (norms and biases)."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
