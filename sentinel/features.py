"""The ten trajectory features at every prefix of an episode (the paper, Section 4.1, Appendix I).

Uncertainty: `lp_mean`, `lp_min`, `ent_mean`, `ent_max`. Execution: `empty_rate`, `error_rate`,
`n_steps`. Schema grounding: `failed_refs`, `bad_joins`, `ungrounded_frac`.

Row t uses turns 1…t and nothing later. Before anything is observed a feature is the neutral 0;
what cannot be known (an API without log-probabilities, a query no parser reads, a database without
declared keys) is *missing*: NaN here, null in the table, and never merged with the neutral value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sentinel.tables import FEATURES

if TYPE_CHECKING:
    from sentinel.episodes import Episode, Turn
    from sentinel.sql.grounding import Grounding
    from sentinel.sql.schema import Schema

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "uncertainty": FEATURES[:4],
    "execution": FEATURES[4:7],
    "schema": FEATURES[7:],
}
_EXECUTED = ("ok", "empty", "error")
_SQLITE_UNREAD = re.compile(r"syntax error|unrecognized token|incomplete input", re.IGNORECASE)
_SQLITE_UNRESOLVED = re.compile(r"no such (?:table|column)", re.IGNORECASE)


def trajectory_features(
    episode: Episode, question: str, schema: Schema | None = None, clock: str = ""
) -> np.ndarray:
    """The ten features of one episode: (T+1, 10) float64 in the order of `tables.FEATURES`.

    `schema` is None where actions are no SQL: the schema family is then missing. `clock` is the
    database's own "now", whose literals need no source.
    """
    steps = episode.steps
    out = np.zeros((len(steps) + 1, len(FEATURES)))
    out[1:, 0:4] = _uncertainty(steps)
    out[1:, 4:7] = _execution(steps)
    if schema is None:
        out[:, 7:] = np.nan
    else:
        out[1:, 7:] = _schema(steps, question, schema, clock)
        if not schema.foreign_keys:
            out[:, 8] = np.nan
    return out


def feature_rows(
    episodes: Iterable[Episode],
    questions: Mapping[str, str],
    schema: Schema | None = None,
    clock: str = "",
) -> list[dict[str, Any]]:
    """Rows of the `features` table, T+1 per episode; `questions` maps task_id to its text."""
    rows = []
    for episode in episodes:
        matrix = trajectory_features(episode, questions[episode.task_id], schema, clock)
        tokens = np.cumsum([0, *(s.generated_tokens for s in episode.steps)])
        seconds = np.cumsum(
            [0.0, *((s.engine_seconds or 0.0) + (s.env_seconds or 0.0) for s in episode.steps)]
        )
        for t, values in enumerate(matrix):
            rows.append(
                {
                    "benchmark": episode.benchmark,
                    "agent": episode.agent,
                    "episode_id": episode.episode_id,
                    "t": t,
                    **{
                        name: None if np.isnan(value) else float(value)
                        for name, value in zip(FEATURES, values, strict=True)
                    },
                    "tokens_so_far": int(tokens[t]),
                    "seconds_so_far": float(seconds[t]),
                }
            )
    return rows


def token_statistics(
    logprobs: Sequence[np.ndarray | Sequence[float] | None],
    top_logprobs: Sequence[np.ndarray | Sequence[float] | None],
    k: int = 5,
) -> np.ndarray:
    """Per-turn [mean lp, min lp, mean entropy, max entropy]: (T, 4), from flat arrays.

    Entropy is −Σ p ln p over the k likeliest tokens, not renormalised. A turn without tokens gives
    NaN in all four with nothing missing; a turn without telemetry gives +inf as a mark of missing.
    """
    out = np.full((len(logprobs), 4), np.nan)
    _reduce(logprobs, out[:, 0:2], np.minimum, lambda flat: flat)
    _reduce(top_logprobs, out[:, 2:4], np.maximum, lambda flat: _entropy(flat.reshape(-1, k)), k)
    return out


def _reduce(parts: Any, out: np.ndarray, extreme: np.ufunc, values: Any, width: int = 1) -> None:
    arrays = [None if p is None else np.asarray(p, dtype=np.float64).ravel() for p in parts]
    sizes = np.array([-1 if a is None else a.size // width for a in arrays], dtype=np.int64)
    out[sizes < 0] = np.inf
    full = np.flatnonzero(sizes > 0)
    if not full.size:
        return
    flat = values(np.concatenate([a for a in arrays if a is not None and a.size]))
    starts = np.concatenate([[0], np.cumsum(sizes[full])[:-1]])
    out[full, 0] = np.add.reduceat(flat, starts) / sizes[full]
    out[full, 1] = extreme.reduceat(flat, starts)
    out[full[~np.isfinite(out[full]).all(axis=1)]] = np.inf


def _entropy(logs: np.ndarray) -> np.ndarray:
    p = np.exp(logs)
    return -np.where(p > 0, p * np.where(p > 0, logs, 0.0), 0.0 * p).sum(axis=1)


def _uncertainty(steps: Sequence[Turn]) -> np.ndarray:
    stats = token_statistics([s.logprobs for s in steps], [s.top_logprobs for s in steps])
    out = np.zeros((len(steps), 4))
    for column, extreme in ((0, np.minimum), (2, np.maximum)):
        mean, peak = stats[:, column], stats[:, column + 1]
        seen = np.isfinite(mean)
        count = np.cumsum(seen)
        total = np.cumsum(np.where(seen, mean, 0.0))
        out[:, column] = np.divide(total, count, out=np.zeros(len(steps)), where=count > 0)
        worst = np.inf if extreme is np.minimum else -np.inf
        running = extreme.accumulate(np.where(seen, peak, worst))
        out[:, column + 1] = np.where(count > 0, running, 0.0)
        out[np.maximum.accumulate(np.isinf(mean)), column : column + 2] = np.nan
    return out


def _execution(steps: Sequence[Turn]) -> np.ndarray:
    ran = np.array([_executed(s) for s in steps], dtype=bool)
    status = np.array([s.status for s in steps], dtype=object)
    count = np.cumsum(ran)
    out = np.zeros((len(steps), 3))
    for column, name in enumerate(("empty", "error")):
        hits = np.cumsum(ran & (status == name))
        out[:, column] = np.divide(hits, count, out=np.zeros(len(steps)), where=count > 0)
    out[:, 2] = np.arange(1, len(steps) + 1)
    return out


def _schema(steps: Sequence[Turn], question: str, schema: Schema, clock: str) -> np.ndarray:
    # sqlglot takes 0.1 s to import: nothing but this family needs it
    from sentinel.sql.grounding import ground
    from sentinel.sql.literals import Evidence

    evidence = Evidence(clock, [question])
    out = np.zeros((len(steps), 3))
    failed = bad = fraction = 0.0
    for i, step in enumerate(steps):
        if step.kind in ("act", "final"):
            found = ground(step.action, schema)
            agreed = found if found is not None and _agrees(step, found) else None
            failed += agreed.failed_refs if agreed is not None else np.nan
            if schema.foreign_keys:
                bad += (agreed.bad_joins or 0) if agreed is not None else np.nan
            if step.kind == "final":
                fraction = evidence.ungrounded(found.literals) if found is not None else np.nan
        out[i] = failed, bad, fraction
        if _executed(step) and step.status == "ok":
            evidence.add_result(step.observation)
    return out


def _executed(step: Turn) -> bool:
    return step.kind in ("act", "final") and step.status in _EXECUTED


def _agrees(step: Turn, found: Grounding) -> bool:
    """Whether SQLite, which has the last word on names, saw what the parser saw."""
    if step.status in ("ok", "empty"):
        return found.failed_refs == 0
    if step.status == "error":
        if _SQLITE_UNREAD.search(step.observation):
            return False
        if _SQLITE_UNRESOLVED.search(step.observation):
            return found.failed_refs > 0
    return True
