"""Training of one head: a plain torch function of arrays, the same on one worker or several.

A torch room: imported inside functions only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sentinel.heads.batches import Batches, bucketed, class_weights, masked_loss
from sentinel.heads.checkpoint import Checkpoints, signature
from sentinel.heads.config import HeadConfig, HeadFailure
from sentinel.heads.model import HeadModel, attention, fastest_attention
from sentinel.heads.score import score_tokens
from sentinel.heads.strategy import Strategy, micro_steps
from sentinel.heads.tokens import Specials, Tokenized


@dataclass
class Fit:
    """The kept state of a training run, and one mapping per epoch.

    Kept is the last epoch that is not clearly worse than the best (see `_slack`). `losses` are
    those of the global batches that this session trained on; `resumed` the epoch it went on after.
    """

    model: HeadModel
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    losses: list[float] = field(default_factory=list)
    resumed: int = 0


OnEpoch = Callable[[dict[str, Any], list[float]], None]
"""Told of each epoch: its record, and the losses of its batches."""


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
    strategy: Strategy | None = None,
    checkpoints: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Train a head; AdamW, linear warm-up and decay, clipped gradients, early stopping.

    `targets` is (n,) or (n, outputs) in [0, 1]; NaN masks a row out of that output's loss. `train`
    and `stop` are row indices; without early-stopping rows the last epoch is kept. `groups` (n,)
    names the episode of each row, for `config.prefixes`. Same seed, same result on one device.

    `strategy` spreads the fit over processes (None: this one, on `device`): the batches are those
    of one process and the loss is the mean over the global batch, so that neither the number of
    processes nor `config.micro_batch` changes more than rounding (but for `config.dropout`, whose
    masks each process draws for itself). With a folder of `checkpoints`, a fit that was killed goes
    on after its last whole epoch, to the same result.

    Raises HeadFailure when the loss is not finite, or for a corrupt checkpoint.
    """
    targets = np.asarray(targets, dtype=np.float32).reshape(len(tokens), -1)
    weights = class_weights(targets[train], config.class_weights)
    strategy = strategy or Strategy(device, config.dtype)
    micro = micro_steps(config, strategy.world)
    strategy.prepare(model, config, micro)
    batches = Batches(tokens, targets, specials, config, weights, micro)
    rate = _rates(config, len(_epoch_rows(train, groups, config.prefixes, _generator(0))))
    slack = _slack(targets[stop], None if groups is None else groups[stop], config.stop_on)
    lengths = tokens.lengths(specials, config.max_train_tokens)
    saved = None
    if checkpoints is not None:
        made_of = [config.to_dict(), seed, strategy.name, strategy.world, micro, groups]
        made_of += [tokens.ids, tokens.starts, targets, train, stop]
        saved = Checkpoints(checkpoints, signature(made_of), strategy)
    fit, rng = Fit(model), _generator(seed)
    best, kept, step = -np.inf, None, 0
    with ExitStack() as held:
        held.enter_context(seeded(seed + strategy.rank))
        if config.dtype == "bfloat16":  # what flash-attention wants, where it is
            held.enter_context(attention(model, fastest_attention(model, strategy.device)))
        if saved is not None and (found := saved.load()) is not None:
            done, kept = found
            fit.history, fit.best_epoch, step = done["history"], done["best_epoch"], done["step"]
            best = -np.inf if done["best"] is None else done["best"]
            rng.bit_generator.state = done["rng"]
            fit.resumed = len(fit.history)
        for epoch in range(len(fit.history) + 1, config.epochs + 1):
            if epoch - 1 - fit.best_epoch >= config.patience:
                break
            started, seen, losses, summed = time.perf_counter(), 0, [], 0.0
            strategy.model.train()
            rows = _epoch_rows(train, groups, config.prefixes, rng)
            for batch in bucketed(rows, lengths, config.batch_size, rng):
                value, read = batches.backward(strategy, batch, f"{seed}/{step}")
                if not np.isfinite(value):
                    raise HeadFailure(f"the loss became {value} in epoch {epoch}")
                strategy.step(rate(step))
                step, seen = step + 1, seen + read
                losses.append(value)
                summed += value * len(batch)
            record: dict[str, Any] = {
                "epoch": epoch,
                "loss": summed / len(rows),
                "tokens_per_second": round(seen / (time.perf_counter() - started)),
            }
            if len(stop):
                record |= evaluate(strategy, tokens, targets, stop, specials, config, weights)
            fit.history.append(record)
            fit.losses += losses
            value = _criterion(record, config.stop_on) if len(stop) else float(epoch)
            best = max(best, value)
            if value >= best - slack:
                kept, fit.best_epoch = strategy.weights(), epoch
            if saved is not None:
                state = {"history": fit.history, "best_epoch": fit.best_epoch, "step": step}
                state |= {"best": best if np.isfinite(best) else None}
                saved.save(epoch, state | {"rng": rng.bit_generator.state}, kept)
            if on_epoch is not None and strategy.rank == 0:
                on_epoch(record, losses)
    if kept is None:
        raise HeadFailure("no epoch gave a finite loss on the early-stopping rows")
    fit.model = strategy.finish(model, kept)
    return fit


def evaluate(
    strategy: Strategy,
    tokens: Tokenized,
    targets: np.ndarray,
    rows: np.ndarray,
    specials: Specials,
    config: HeadConfig,
    weights: np.ndarray,
) -> dict[str, float | None]:
    """Loss (null unless finite) and mean AUROC (null where a target has one class) of the
    early-stopping rows."""
    from sklearn.metrics import roc_auc_score

    with strategy.precision():
        logits = spread_scores(
            strategy, strategy.reader, tokens.take(rows), specials, config.max_train_tokens
        )
    target = targets[rows]
    loss = float(masked_loss(torch.from_numpy(logits).float(), torch.from_numpy(target), weights))
    if not np.isfinite(loss):
        return {"stop_loss": None, "stop_auroc": None}
    areas = []
    for column in range(target.shape[1]):
        known = ~np.isnan(target[:, column])
        if len(np.unique(target[known, column])) == 2:
            areas.append(roc_auc_score(target[known, column], logits[known, column]))
    return {"stop_loss": loss, "stop_auroc": float(np.mean(areas)) if areas else None}


def spread_scores(
    strategy: Strategy, model: Any, tokens: Tokenized, specials: Specials, window: int
) -> np.ndarray:
    """(n, outputs) logits of `score_tokens`, each process reading its share of the rows.

    Raises HeadFailure in every process when one of them meets a logit that is not finite.
    """
    if strategy.world == 1 or (strategy.lockstep and model is strategy.reader):
        return score_tokens(model, tokens, specials, window, device=strategy.device)
    mine = np.arange(len(tokens))[strategy.rank :: strategy.world]
    out, cause = np.zeros((len(tokens), int(model.out.out_features))), ""
    try:
        out[mine] = score_tokens(model, tokens.take(mine), specials, window, device=strategy.device)
    except HeadFailure as failure:
        out[mine], cause = np.nan, str(failure)
    out = strategy.sum(out)
    if not np.isfinite(out).all():
        raise HeadFailure(cause or "another process met logits that are not finite")
    return out


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


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _rates(config: HeadConfig, per_epoch: int) -> Callable[[int], float]:
    """The learning rate of every step: linear warm-up and decay over all epochs."""
    total = max(1, config.epochs * -(-per_epoch // config.batch_size))
    warm = max(1, round(config.warmup * total))

    def rate(step: int) -> float:
        left = max(0.0, (total - step) / (total - warm + 1))
        return config.learning_rate * min((step + 1) / warm, left)

    return rate


def _criterion(record: dict[str, Any], stop_on: str) -> float:
    if record["stop_loss"] is None:
        return np.nan
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
