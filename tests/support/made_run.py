"""A small run directory with seeded, made-up episodes: real tables, real decisions, no model.

The tables go through `RunDir` and the decisions through the decision layer itself, so that a page
built from it meets exactly the files of a real run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster import files
from sentinel import tables

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=pwned=1>$x^$ \u202eevil"
HOSTILE_BENCHMARK = "<!-- 9007199254740993 -->&lt;"
"""Names that attack a page: markup, mathematics, a right-to-left mark, an id above 2^53."""
MAKERS = {
    # name: (answers rightly, answers an unanswerable question, gives up, mean turns)
    "steady": (0.75, 0.35, 0.05, 2.2),
    "fabricator": (0.5, 0.8, 0.02, 1.6),
    "explorer": (0.6, 0.5, 0.05, 4.5),
}


def make_tasks(n: int, seed: int, benchmark: str = "clinic") -> list[dict[str, Any]]:
    """Tasks without a pool: n questions in n // 6 groups, a quarter unanswerable."""
    generator = np.random.default_rng(seed)
    groups = max(n // 6, 12)
    return [
        {
            "benchmark": benchmark,
            "task_id": f"q{i:05d}",
            "group": f"g{i % groups:03d}",
            "text": f"question {i}",
            "answerable": i % groups % 4 != 0,
            "gold": "SELECT 1",
            "meta": "{}",
            "fold": None,
            "pool": "train",
            "_difficulty": float(generator.normal()),
        }
        for i in range(n)
    ]


def make_agent(
    agent: str,
    habits: tuple[float, float, float, float],
    tasks: Sequence[dict[str, Any]],
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Rows of episodes, labels, scores and features of one agent, keyed by table."""
    right, fabricates, gives_up, mean_turns = habits
    generator = np.random.default_rng([seed, sum(agent.encode())])
    rows: dict[str, list[dict[str, Any]]] = {
        "episodes": [], "labels": [], "scores": [], "features": []
    }  # fmt: skip
    for number, task in enumerate(tasks):
        turns = int(min(8, 1 + generator.poisson(mean_turns - 1)))
        ability = math.log(right / (1 - right)) - task["_difficulty"]
        correct_if = generator.random() < 1 / (1 + math.exp(-ability))
        commits = generator.random() < (1 - gives_up if task["answerable"] else fabricates)
        end = "answered" if commits else ("cap" if turns == 8 else "abstained")
        if number % 97 == 5:
            end = "engine_error"
        correct = task["answerable"] and correct_if if end == "answered" else None
        where = {"benchmark": task["benchmark"], "agent": agent}
        episode_id = f"{task['benchmark']}/{agent}/{task['task_id']}/0"
        tokens = [int(generator.integers(20, 60)) for _ in range(turns)]
        rows["episodes"].append(
            {
                **where,
                "episode_id": episode_id,
                "task_id": task["task_id"],
                "group": task["group"],
                "rollout": 0,
                "end": end,
                "turns": turns,
                "action": "SELECT 1" if end == "answered" else None,
                "answer": "{}" if end == "answered" else None,
                "answer_error": None,
                "success": None,
                "error": "engine died" if end == "engine_error" else None,
                "prefix_property": True,
                "prompt_tokens": 400 * turns,
                "generated_tokens": sum(tokens),
                "agent_hash": "0" * 16,
                "engine": "transformers 5.19",
                "environment": None,
                "cost_usd": None,
                "seconds": 0.2 * turns,
                "started_at": 0.0,
                "worker": "w0",
                "host": "here",
                "attempt": 1,
            }
        )
        if end == "engine_error":
            continue
        good = bool(correct) if end == "answered" else not task["answerable"]
        for label in ("typed", "strict-2022"):
            rows["labels"].append(
                {
                    **where,
                    "episode_id": episode_id,
                    "label": label,
                    # The strict rule misses one right answer in thirty.
                    "correct": good and not (label != "typed" and correct and number % 31 == 0),
                    "source": "match" if end == "answered" else "abstained",
                    "version": "1",
                    "error": None,
                }
            )
        for t in range(turns + 1):
            seen = t / turns
            signal = (0.9 if correct else -0.9) * (0.25 + seen) + generator.normal(0, 1.2)
            doubt = (1.4 if task["answerable"] else -1.0) + generator.normal(0, 1.0)
            logits = {"correctness": signal, "answerability": -doubt}
            rows["scores"] += [
                {
                    **where,
                    "episode_id": episode_id,
                    "t": t,
                    "head": head,
                    "logit": float(logit),
                    "fold": None,
                    "truncated": t >= 7,
                }
                for head, logit in logits.items()
            ]
            rows["features"].append(
                {
                    **where,
                    "episode_id": episode_id,
                    "t": t,
                    **_features(generator, t, bool(correct), seen),
                    "tokens_so_far": sum(tokens[:t]),
                    "seconds_so_far": 0.2 * t,
                }
            )
    return rows


def make_snapshots(rows: Mapping[str, list[dict[str, Any]]], tasks: Mapping[str, Any]) -> Any:
    """The prefixes of an agent's episodes with an outcome; no text says how it ended."""
    from sentinel.heads.snapshots import Snapshots

    correct = {r["episode_id"]: r["correct"] for r in rows["labels"] if r["label"] == "typed"}
    found = []
    for e in sorted(rows["episodes"], key=lambda e: str(e["episode_id"])):
        if e["end"] == "engine_error":
            continue
        task = tasks[e["task_id"]]
        fold = -1 if task["fold"] is None else task["fold"]
        head = (e["episode_id"], task["group"], str(task["pool"]), fold, float(task["answerable"]))
        tail = (e["end"] == "answered", float(correct[e["episode_id"]]))
        for t in range(e["turns"] + 1):
            steps = " ".join(f"STEP {k + 1}" for k in range(t))
            found.append((*head, *tail, t, f"QUESTION: {task['text']} {steps}"))
    kinds = (object, object, object, np.int64, np.float64, bool, np.float64, np.int64, object)
    columns = zip(*found, strict=True)
    return Snapshots(*(np.array(c, dtype=k) for c, k in zip(columns, kinds, strict=True)))


def table(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a checked table; keys that begin with `_` are the maker's own."""
    return tables.ALL[name].from_rows(
        [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
    )


def _features(
    generator: np.random.Generator, t: int, correct: bool, seen: float
) -> dict[str, float | None]:
    doubt = max(float(generator.normal(0.3 if correct else 0.45, 0.2)), 0.0) * seen
    noise = lambda scale: float(abs(generator.normal(0, scale)))  # noqa: E731
    return {
        "lp_mean": -doubt - noise(0.1),
        "lp_min": -4 * doubt - noise(0.5),
        "ent_mean": doubt + noise(0.1),
        "ent_max": 2 * doubt + noise(0.3),
        "empty_rate": float(generator.random() < doubt),
        "error_rate": float(generator.random() < doubt / 2),
        "n_steps": float(t),
        "failed_refs": float(generator.poisson(doubt)),
        "bad_joins": None if t == 0 else float(generator.poisson(doubt)),
        "ungrounded_frac": float(generator.random() < doubt),
    }


def make_run(
    root: Path,
    agents: Mapping[str, tuple[float, float, float, float]] | None = None,
    *,
    questions: int = 600,
    seed: int = 7,
    benchmark: str = "clinic",
    resamples: int = 200,
    decided: bool = True,
    audited: bool = False,
    **settings: Any,
) -> Path:
    """A finished run under `root/runs/made` (its ledger under `root/ledgers`), but for its report.

    `audited`: with the stage audit, small.

    Names that a config would refuse are let through: a page must survive any name.
    """
    from threadpoolctl import threadpool_limits

    from cluster.pool import open_cluster
    from cluster.run_dir import RunDir
    from jobs import audit, bootstrap, calibrate
    from jobs.config import RunConfig
    from jobs.sections import AgentConfig
    from sentinel.splits import make_folds, make_pools

    agents = MAKERS if agents is None else agents
    plain = {
        "name": "made",
        "benchmarks": [{"name": "clinic"}],
        "agents": [{"name": "a", "engine": "transformers", "model": "nano:a"}],
        "bootstrap": {"resamples": resamples},
        "audit": {"resamples": 40, "permutations": 1, "loop": "off"},
    }
    config = RunConfig.from_mapping({**plain, **settings})
    named = [
        AgentConfig.model_construct(name=name, engine="transformers", model="nano:x")
        for name in agents
    ]
    bench = config.benchmarks[0].model_copy(update={"name": benchmark})
    config = config.model_copy(update={"agents": tuple(named), "benchmarks": (bench,)})

    tasks = make_tasks(questions, seed, benchmark)
    groups = {row["task_id"]: row["group"] for row in tasks}
    kinds = {row["task_id"]: row["answerable"] for row in tasks}
    pools = make_pools(groups, kinds)
    train = [task for task, pool in pools.items() if pool == "train"]
    folds = make_folds({t: groups[t] for t in train}, {t: kinds[t] for t in train})
    for row in tasks:
        row["pool"] = str(pools[row["task_id"]])
        row["fold"] = folds.get(row["task_id"])

    run_dir = RunDir(root / "runs" / "made")
    run_dir.prepare(config.model_dump(mode="json"))
    files.write_json(run_dir.env_path, {"python": "3.11", "git": {"commit": "0" * 40}})

    def write(name: str, rows: Sequence[dict[str, Any]], agent: str | None) -> None:
        run_dir.write_table(name, benchmark, agent, table(name, rows), stage="made", source="made")

    write("tasks", tasks, None)
    fold_of = {row["task_id"]: row["fold"] for row in tasks}
    for agent, habits in agents.items():
        rows = make_agent(agent, habits, tasks, seed)
        task_of = {row["episode_id"]: row["task_id"] for row in rows["episodes"]}
        for row in rows["scores"]:
            row["fold"] = fold_of[task_of[row["episode_id"]]]
        for name in ("episodes", "labels", "features", "scores"):
            write(name, rows[name], agent)
        texts = make_snapshots(rows, {row["task_id"]: row for row in tasks}).to_table()
        run_dir.commit("heads", benchmark, agent, "snapshots", {"snapshots": texts}, "made")
    for stage, spent in (("collect", 61.5), ("label", 12.0), ("heads", 240.0)):
        run_dir.metric(stage, event="seconds", seconds=spent, outcome="ok")
    if decided:
        # One thread: this machine may be busy, and trees of this size gain nothing from two.
        with threadpool_limits(1), open_cluster("debug", 1, 0, None) as cluster:
            stages = [("audit", audit)] if audited else []
            for stage, module in (*stages, ("calibrate", calibrate), ("bootstrap", bootstrap)):
                with run_dir.timed(stage):
                    module.run(config, run_dir, cluster)
    return run_dir.root
