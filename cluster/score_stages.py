"""What a worker does for `sentinel score`: an agent's prefixes through the heads of a monitor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cluster import files
from cluster.head_stages import FoldItem, Where, read_episodes, read_tasks, score_tables
from sentinel.heads.store import FLUSH_TOKENS
from sentinel.tables import SCORES

if TYPE_CHECKING:
    from sentinel.heads.live import LiveHeads

SCORE = "score"
FOLDER = "scored"


@dataclass(frozen=True)
class ScoreItem:
    """The prefixes of one agent in some pools, and the frozen monitor (its folder) that reads them.

    `flush_tokens`: tokens between two writes of what was read, which is what a kill can cost.
    """

    where: Where
    monitor: str
    pools: tuple[str, ...]
    drop_stopped: bool = False
    device: str = "cpu"
    flush_tokens: int = FLUSH_TOKENS


def scored_folder(where: Where) -> Path:
    """Where the logits of an agent's prefixes and the tables made of them are kept."""
    names = (files.safe_name(name) for name in (where.benchmark, where.agent))
    return where.run_dir.root.joinpath(FOLDER, *names)


def score_part(item: ScoreItem) -> dict[str, Any]:
    """Table `scores` of both heads, and what was done.

    `prefixes` and `episodes` of those pools, `left_out` prefixes of the other pools, `distinct`
    prefixes, `new` of them, read in `batches`; `truncated` prefixes; `dropped` episodes by end;
    `seconds`, of which `read_seconds` in the heads (the rest loads, renders and tokenises); whether
    logits are `kept` (an encoder's are, those of TF–IDF are made anew).

    Raises UserError for a folder that is no monitor, and HeadFailure for a logit that is not
    finite.
    """
    from sentinel.agent.react import Dialect
    from sentinel.heads.live import LiveTfidf
    from sentinel.heads.snapshots import build
    from sentinel.monitor import Monitor, load

    started = time.perf_counter()
    monitor = load(item.monitor, item.device)
    assert isinstance(monitor, Monitor)
    heads = monitor.heads
    assert heads.live is not None
    snapshots, dropped = build(
        read_episodes(item.where, None, telemetry=False),
        read_tasks(item.where),
        {},
        drop_stopped=item.drop_stopped,
        dialect=Dialect(**monitor.facts["dialect"]),
    )
    rows = np.flatnonzero(np.isin(snapshots.pool, item.pools))
    texts = snapshots.text[rows].tolist()
    truncated = np.zeros(len(rows), dtype=bool)
    if isinstance(heads.live, LiveTfidf):
        reading = time.perf_counter()
        logits = [head.logits(texts) for head in heads.live.heads]
        distinct = len(set(texts))
        done = {
            "distinct": distinct,
            "new": distinct,
            "batches": int(bool(texts)),
            "kept": False,
            "read_seconds": round(time.perf_counter() - reading, 3),
        }
    else:
        logits, truncated, done = _encoder(item, heads.names, heads.live, texts)
    parts = [SCORES.empty()]
    for name, values in zip(heads.names, logits, strict=True):
        final = FoldItem(item.where, name, None, {})
        parts += score_tables(final, snapshots, rows, values, truncated).values()
    return {
        "scores": pa.concat_tables(parts),
        "prefixes": len(rows),
        "left_out": len(snapshots) - len(rows),
        "episodes": len(set(snapshots.episode_id[rows])),
        "truncated": int(truncated.sum()),
        "dropped": dict(dropped),
        "seconds": round(time.perf_counter() - started, 3),
        **done,
    }


def _encoder(
    item: ScoreItem, names: tuple[str, ...], live: LiveHeads, texts: list[str]
) -> tuple[list[np.ndarray], np.ndarray, dict[str, Any]]:
    """The logits of each head, kept ones and new ones; which prefixes were cut; what was done."""
    from sentinel.heads.store import ScoreStore, head_key, score_new_heads

    tokens = live.tokens(texts)
    stores = []
    for name, model in zip(names, live.models, strict=True):
        key = head_key(model, live.specials, live.window)
        path = scored_folder(item.where) / f"{name}-{key[:16]}.bin"
        stores.append(ScoreStore(path, key, int(model.out.out_features)))
    reading = time.perf_counter()
    found = score_new_heads(
        live.models,
        tokens,
        live.specials,
        live.window,
        stores,
        device=live.device,
        flush_tokens=item.flush_tokens,
    )
    done = {
        "distinct": found.distinct,
        "new": found.new,
        "batches": found.batches,
        "kept": True,
        "read_seconds": round(time.perf_counter() - reading, 3),
    }
    logits = [values[:, 0] for values in found.logits]
    return logits, tokens.truncated(live.specials, live.window), done
