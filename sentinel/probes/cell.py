"""The episodes of one agent on one benchmark as scorers read them: a cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UserError
from sentinel.probes.surface import ERROR_WORDS, SURFACE, surface_features
from sentinel.tables import MONITORED, OUTCOME_ENDS

if TYPE_CHECKING:
    from sentinel.agent.react import Dialect
    from sentinel.episodes import Episode

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Texts = NDArray[np.object_]
MICROSECONDS = "microseconds"


@dataclass(frozen=True)
class Prices:
    """Integer prices of a token; `unit` "microseconds" counts measured time instead."""

    prompt: int = 1
    generated: int = 4
    unit: str = "tokens"


@dataclass(frozen=True)
class Cell:
    """E episodes with an outcome, sorted by id, G gates.

    `episode`, `task`, `group` (E,); `T` (E,) rounds; `success` per episode, None where the outcome
    is unknown; `cost` (E, G) cumulative cost through each round, 0 after the last, and `cost_total`
    (E,); `surface` (E, G, 5); `texts` per episode and round r = 1…min(T, G): the text through its
    action, before the feedback; `goal` the task's own text, `meta` its numbers (booleans as 0/1).
    `vectors` (E, G, d) float16 hidden states at layer `layer`, NaN where a turn has none, or None.
    `agent_hash`: which weights made the episodes; `dropped`: those without an outcome, by end.
    """

    benchmark: str
    agent: str
    episode: Texts
    task: Texts
    group: Texts
    T: Ints
    success: tuple[bool | None, ...]
    cost: Ints
    cost_total: Ints
    surface: Floats
    texts: tuple[tuple[str, ...], ...]
    goal: tuple[str, ...]
    meta: tuple[Mapping[str, float], ...]
    agent_hash: str
    dropped: Mapping[str, int]
    vectors: NDArray[np.float16] | None = None
    layer: int | None = None

    def __len__(self) -> int:
        return len(self.T)

    @property
    def name(self) -> str:
        """`benchmark/agent`, the `cell` of `round_scores`."""
        return f"{self.benchmark}/{self.agent}"

    @property
    def gates(self) -> int:
        """G."""
        return int(self.surface.shape[1])

    @property
    def known(self) -> Bools:
        """Episodes whose outcome is known, (E,)."""
        return np.array([y is not None for y in self.success], dtype=bool)

    @property
    def failed(self) -> Bools:
        """Episodes known to have failed, (E,)."""
        return np.array([y is False for y in self.success], dtype=bool)

    def alive(self, r: int, after_feedback: bool = False) -> Bools:
        """Episodes that reach gate r (1-based) by their own end, (E,)."""
        return np.asarray(r < self.T if after_feedback else r <= self.T)

    def unit(self, by: str) -> Texts:
        """What is split: the task, or its group."""
        return self.group if by == "group" else self.task

    def numbers(self, key: str) -> Floats:
        """A number of each episode's task, (E,); NaN where it has none of that name."""
        return np.array([m.get(key, np.nan) for m in self.meta], dtype=np.float64)

    def with_vectors(self, found: Mapping[tuple[str, int], Any], layer: int) -> Cell:
        """The same with hidden states, given by (episode id, round); others are NaN.

        Raises UserError where no episode of the cell has any.
        """
        width = next((len(v) for v in found.values()), 0)
        if not width:
            raise UserError(
                f"no activations of layer {layer} for {self.name}", "run: sentinel activations"
            )
        out = np.full((len(self), self.gates, width), np.nan, dtype=np.float16)
        for i, episode in enumerate(self.episode):
            for r in range(1, min(int(self.T[i]), self.gates) + 1):
                vector = found.get((episode, r))
                if vector is not None:
                    out[i, r - 1] = vector
        return replace(self, vectors=out, layer=layer)


def outcome(end: str, answerable: bool | None, correct: bool | None) -> bool | None:
    """y: on text-to-SQL answered ∧ answerable ∧ correct, on environments the verdict itself.

    An abort yields no answer, so that a right refusal is no success that could be lost.

    >>> outcome("answered", True, None), outcome("cap", True, None), outcome("cap", None, True)
    (None, False, True)
    """
    if answerable is None:
        return correct
    return correct if end == "answered" and answerable else False


def cell_of(
    episodes: Iterable[Episode],
    tasks: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, bool | None],
    *,
    benchmark: str,
    agent: str,
    gates: int = 6,
    words: Sequence[str] = ERROR_WORDS,
    prices: Prices | None = None,
    dialect: Dialect | None = None,
    drop_stopped: bool = False,
    texts: bool = True,
) -> Cell:
    """Lay out the episodes of one agent; those without an outcome are dropped and counted.

    `tasks` maps task_id to its row of the `tasks` table, `correct` episode_id to the primary label;
    `texts` False leaves the rendered rounds out. Raises UserError for episodes that a monitor ended
    (unless `drop_stopped`), that two versions of the agent made, or that have no measured time
    where time is the cost; and where there is none left.
    """
    from sentinel.agent.react import SQL_DIALECT
    from sentinel.episodes import render

    prices, dialect = prices or Prices(), dialect or SQL_DIALECT
    rows: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    hashes = set()
    for e in episodes:
        if e.end not in OUTCOME_ENDS or not e.steps:
            dropped[e.end] += 1
            continue
        task = tasks[e.task_id]
        total = np.cumsum([_price(s, prices) for s in e.steps])
        cost = np.zeros(gates, dtype=np.int64)
        cost[: len(total)] = total[:gates]
        seen = range(1, min(len(e.steps), gates) + 1) if texts else ()
        rows.append(
            {
                "episode": e.episode_id,
                "task": e.task_id,
                "group": e.group,
                "T": len(e.steps),
                "success": outcome(e.end, task["answerable"], correct.get(e.episode_id)),
                "cost": cost,
                "cost_total": int(total[-1]),
                "surface": surface_features(e.steps, gates, words),
                "texts": tuple(
                    render(task["text"], e.steps, r, None, dialect, feedback=False) for r in seen
                ),
                "goal": task["text"],
                "meta": _numbers(task["meta"]),
            }
        )
        hashes.add(e.agent_hash)
    _refuse(f"{benchmark}/{agent}", rows, dropped, hashes, drop_stopped)
    rows.sort(key=lambda r: r["episode"])

    def column(name: str, kind: Any) -> NDArray[Any]:
        return np.array([row[name] for row in rows], dtype=kind)

    return Cell(
        benchmark,
        agent,
        column("episode", object),
        column("task", object),
        column("group", object),
        column("T", np.int64),
        tuple(row["success"] for row in rows),
        column("cost", np.int64).reshape(len(rows), gates),
        column("cost_total", np.int64),
        column("surface", np.float64).reshape(len(rows), gates, len(SURFACE)),
        tuple(row["texts"] for row in rows),
        tuple(row["goal"] for row in rows),
        tuple(row["meta"] for row in rows),
        next(iter(hashes)),
        dict(sorted(dropped.items())),
    )


def _refuse(
    name: str,
    rows: Sequence[Any],
    dropped: Mapping[str, int],
    hashes: set[str],
    drop_stopped: bool,
) -> None:
    ended = {end: dropped[end] for end in MONITORED if dropped.get(end)}
    if ended and not drop_stopped:
        counts = ", ".join(f"{n} {end}" for end, n in ended.items())
        raise UserError(
            f"{name}: episodes that a monitor ended have no outcome ({counts})",
            "set decide.drop_stopped=true to drop and count them, or collect without stop_with",
        )
    if not rows:
        raise UserError(f"{name} has no episode with an outcome", "collect more episodes")
    if len(hashes) > 1:
        raise UserError(
            f"{name}: its episodes were made by {len(hashes)} versions of the agent",
            "collect them anew under another run name",
        )


def _price(step: Any, prices: Prices) -> int:
    if prices.unit != MICROSECONDS:
        return int(prices.prompt * step.prompt_tokens + prices.generated * step.generated_tokens)
    if step.engine_seconds is None:
        raise UserError(
            f"{step.episode_id} has no measured engine time", "set cascade.cost_unit=tokens"
        )
    return round(1e6 * (step.engine_seconds + (step.env_seconds or 0.0)))


def _numbers(meta: str) -> dict[str, float]:
    found = json.loads(meta)
    return {k: float(v) for k, v in sorted(found.items()) if isinstance(v, bool | int | float)}
