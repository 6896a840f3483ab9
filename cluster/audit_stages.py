"""What workers do in the audit: the battery and the screen of an agent, one fold of a refit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.head_stages import Where, fit_seed, read_snapshots
from sentinel.tables import AUDIT, AUDIT_LOGITS, FEATURE_SCREEN

AUDIT_STAGE = "audit"
BATTERY, SCREEN = "battery", "screen"


@dataclass(frozen=True)
class PoolItem:
    """The battery or the screen of one agent, by `name`."""

    where: Where
    name: str
    settings: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class RefitItem:
    """One fold of a head, fitted again: with another seed, or (`shuffle`) on permuted labels."""

    where: Where
    check: str
    head: str
    variant: str
    fold: int
    heads: Mapping[str, Any] = field(hash=False)
    seed: int
    shuffle: int | None = None
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The part's name, such as `seeds correctness seed-1 fold0`."""
        return f"{self.check} {self.head} {self.variant} fold{self.fold}"


Item = PoolItem | RefitItem


def audit_part(item: Item) -> dict[str, pa.Table]:
    """One item: table `audit`, `feature_screen` or `audit_logits`."""
    return _refit(item) if isinstance(item, RefitItem) else _pool(item)


def _pool(item: PoolItem) -> dict[str, pa.Table]:
    from sentinel.audit.battery import battery
    from sentinel.audit.pool import TrainPool
    from sentinel.audit.screen import screen

    where, run_dir = item.where, item.where.run_dir
    place = where.benchmark, where.agent
    episodes = run_dir.read("episodes", *place).select(["episode_id", "end"])
    ends = dict(zip(episodes["episode_id"].to_pylist(), episodes["end"].to_pylist(), strict=True))
    pool = TrainPool.of(
        read_snapshots(where),
        ends,
        run_dir.read("features", *place),
        run_dir.read("scores", *place),
    )
    if item.name == SCREEN:
        return {
            "feature_screen": FEATURE_SCREEN.from_rows(placed(where, screen(pool, **item.settings)))
        }
    return {"audit": AUDIT.from_rows(placed(where, battery(pool, **item.settings)))}


def placed(where: Where, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the benchmark and agent they are about."""
    return [{"benchmark": where.benchmark, "agent": where.agent, **row} for row in rows]


def _refit(item: RefitItem) -> dict[str, pa.Table]:
    from sentinel.audit.refits import one_fold
    from sentinel.heads.config import HeadConfig

    found = one_fold(
        read_snapshots(item.where),
        item.head,
        item.fold,
        HeadConfig.of(item.heads),
        fit_seed(item.seed, item.head, item.fold),
        shuffle=item.shuffle,
        device=item.device,
    )
    rows = [
        {
            "check": item.check,
            "target": item.head,
            "variant": item.variant,
            "episode_id": episode,
            "fold": item.fold,
            "positive": bool(positive),
            "logit": None if np.isnan(logit) else float(logit),
        }
        for episode, positive, logit in zip(
            found.episode_id, found.positive, found.logit, strict=True
        )
    ]
    return {"audit_logits": AUDIT_LOGITS.from_rows(placed(item.where, rows))}
