"""A made-up world of 20-round episodes: tables that the cascade's stages read, without any model.

Failing shows in the hidden state from round 2 on, hardly in the log-probabilities; deeper goals
fail more often, so that the task alone tells something too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel.agent.react import Dialect
from sentinel.episodes import Episode, Turn, episode_id, to_rows
from sentinel.tables import EPISODES, LAYER_SWEEP, TASKS, TURNS, activations

WIDTH, LAYER, CAP = 16, 2, 20
WORLD = {"name": "world", "kind": "made_rounds:MadeWorld"}


class MadeWorld:
    """The world as a benchmark: the label stage and the rendering ask it for no more than this."""

    dialect = Dialect(act="ACTION", final=None, abstain=None)
    max_turns = CAP

    def __init__(self, name: str = "world") -> None:
        self.name = name

    def prepare(self, cache: Path) -> None:
        """Nothing to build."""

    def close(self) -> None:
        """Nothing to end."""


def tasks(n: int = 200, groups: int = 50) -> list[dict[str, Any]]:
    """Rows of the `tasks` table: goals of depth 1…3, pools and folds by group."""
    rows = []
    for i in range(n):
        g = i % groups
        pool = "calibration" if g % 5 == 3 else "heldout" if g % 5 == 4 else "train"
        rows.append(
            {
                "benchmark": "world",
                "task_id": f"t{i:04d}",
                "group": f"g{g:03d}",
                "pool": pool,
                "fold": g % 5 if pool == "train" else None,
                "text": f"craft item {g} of depth {1 + g % 3}",
                "answerable": None,
                "gold": None,
                "meta": json.dumps({"depth": 1 + g % 3}),
            }
        )
    train = sorted({r["group"] for r in rows if r["pool"] == "train"})
    for row in rows:
        if row["fold"] is not None:
            row["fold"] = train.index(row["group"]) % 5
    return rows


def episode(
    task: dict[str, Any], agent: str, seed: int, rollout: int = 0, wins: float = 0.0
) -> tuple[Episode, np.ndarray]:
    """One episode and its hidden states (T, WIDTH)."""
    number = int(task["task_id"][1:])
    rng = np.random.default_rng([seed, number, rollout])
    depth = json.loads(task["meta"])["depth"]
    won = bool(rng.normal(wins + 2.0 - depth, 1.0) > 0)
    T = int(rng.integers(2, 9)) if won else int(rng.choice([CAP, rng.integers(6, 18)]))
    where = ("world", agent, episode_id("world", agent, task["task_id"], rollout))
    steps, states = [], np.zeros((T, WIDTH))
    for r in range(1, T + 1):
        last = r == T
        lost = not won and rng.random() < 0.4
        shown = "error: no such item" if lost else "made" if last and won else "ok, go on"
        n = int(rng.integers(2, 6))
        logs = -np.abs(rng.normal(0.4 if won else 0.5, 0.3, n)).astype(np.float32)
        states[r - 1] = rng.normal(0, 1, WIDTH)
        states[r - 1, 0] += min(r, 4) * (-0.5 if won else 0.5)
        states[r - 1, 1] += depth
        steps.append(
            Turn(
                *where,
                r,
                prompt_ids=[1, 2, 3],
                generated_ids=[4] * n,
                text="ACTION: get",
                kind="act",
                action=f"get part {r}",
                observation=shown,
                rendered=shown,
                status="error" if lost else "ok",
                prompt_tokens=20 * r,
                generated_tokens=n,
                logprobs=logs.tolist(),
                engine_seconds=0.01 * n,
                env_seconds=0.001,
            )
        )
    found = Episode(
        *where,
        task["task_id"],
        task["group"],
        rollout,
        "cap" if T == CAP and not won else "answered",
        T,
        success=won,
        agent_hash=f"hash of {agent}",
        steps=steps,
    )
    return found, states


def write(
    run_dir: RunDir,
    agents: Sequence[str] = ("able", "weak"),
    *,
    n: int = 200,
    rollouts: int = 1,
    wins: Sequence[float] = (0.4, -0.4),
    hidden: bool = True,
    modes: Sequence[str] = ("paper", "strict"),
) -> None:
    """The tables that collection and the extraction of hidden states leave behind."""
    known = tasks(n)
    put = {"stage": "made", "source": "made"}
    run_dir.write_table("tasks", "world", None, TASKS.from_rows(known), **put)
    for seed, agent in enumerate(agents):
        made = [
            episode(task, agent, seed, rollout, wins[seed % len(wins)])
            for task in known
            for rollout in range(rollouts)
        ]
        rows = [to_rows(e) for e, _ in made]
        run_dir.write_table(
            "episodes", "world", agent, EPISODES.from_rows([r for r, _ in rows]), **put
        )
        turns = TURNS.from_rows([t for _, many in rows for t in many])
        run_dir.write_table("turns", "world", agent, turns, **put)
        if hidden:
            states(run_dir, agent, made, modes)


def states(
    run_dir: RunDir, agent: str, made: Sequence[tuple[Episode, np.ndarray]], modes: Sequence[str]
) -> None:
    """The tables `activations` and `layer_sweep` of an agent, without a sweep."""
    spec = activations(WIDTH)
    keys = [(e.episode_id, s.turn) for e, _ in made for s in e.steps]
    values = np.concatenate([v for _, v in made]).astype(np.float16)
    n = len(keys)
    columns = [
        pa.array(["world"] * n),
        pa.array([agent] * n),
        pa.array([k for k, _ in keys]),
        pa.array([r for _, r in keys], pa.int64()),
        pa.array([LAYER] * n, pa.int64()),
        pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), WIDTH),
    ]
    put = {"stage": "made", "source": "made"}
    table = pa.Table.from_arrays(columns, schema=spec.schema)
    run_dir.write_table("activations", "world", agent, table, **put)
    sweep = [
        {
            "benchmark": "world",
            "agent": agent,
            "mode": mode,
            "layer": LAYER,
            "round": 1,
            "auc": None,
            "episodes": 0,
            "failures": 0,
            "chosen": True,
        }
        for mode in modes
    ]
    run_dir.write_table("layer_sweep", "world", agent, LAYER_SWEEP.from_rows(sweep), **put)


def config(agents: Sequence[Any] = ("able", "weak"), **settings: Any) -> RunConfig:
    """A run of the cascade on the world; agents by name, or as mappings."""
    raw: dict[str, Any] = {
        "name": "rounds",
        "benchmarks": [dict(WORLD)],
        "agents": [
            a
            if isinstance(a, dict)
            else {"name": a, "engine": "transformers", "model": "nano:none"}
            for a in agents
        ],
        "monitors": [{"name": "cascade", "method": "cascade"}],
        "label": "success",
        "cascade": {"seeds": 3, "targets": ["0.85", "0.95"], "strict_targets": ["0.8", "0.9"]},
        "bootstrap": {"resamples": 100},
        "heads": {"kind": "tfidf"},
    }
    for name, value in settings.items():
        both = isinstance(value, dict) and isinstance(raw.get(name), dict)
        raw[name] = {**raw[name], **value} if both else value
    return RunConfig.from_mapping(raw)
