"""A run directory with made-up turns of small real models, ready for hidden states; also a driver
to be killed.

Successes end their turns with other tokens than failures do, more often than not, so that a probe
has something to find.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tiny_tokenizers import write_llama

import jobs.activations
from cluster.engines import agent_hash
from cluster.pool import Cluster, open_cluster
from cluster.run_dir import RunDir
from jobs.config import RunConfig
from sentinel.episodes import Episode, Turn, episode_id, to_rows
from sentinel.tables import EPISODES, LABELS, TASKS, TURNS

BENCHMARK, TASK_COUNT, ROUNDS = "made", 60, 4
PART = 16


def agent(name: str, folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "transformers",
        "model": str(folder),
        "dtype": "float32",
        **changes,
    }


def config(agents: list[dict[str, Any]], **activations: Any) -> RunConfig:
    return RunConfig.from_mapping(
        {
            "name": "hidden",
            "benchmarks": [{"name": BENCHMARK, "kind": "made_episodes:MadeBenchmark"}],
            "agents": agents,
            "label": "success",
            "activations": {"sweep_share": 0.8, **activations},
            "cascade": {"gates": ROUNDS},
        }
    )


def made_turns(name: str, task: str, success: bool, *, broken: bool = False) -> list[Turn]:
    """One to five turns of random tokens (vocabulary 321); `broken`: each prompt in full."""
    rng = np.random.default_rng([sum(name.encode()), int(task[1:])])
    turns, history = [], []
    for number in range(1, int(rng.integers(1, 6)) + 1):
        prompt = rng.integers(4, 320, int(rng.integers(4, 16))).tolist()
        generated = rng.integers(4, 320, int(rng.integers(2, 9))).tolist()
        generated[-2:] = [40 + (success == bool(rng.random() < 0.97))] * 2
        full = broken or number == 1
        shown = [*history, *prompt] if broken else prompt
        turns.append(
            Turn(
                BENCHMARK,
                name,
                episode_id(BENCHMARK, name, task, 0),
                number,
                prompt_ids=shown,
                prompt_is_full=full,
                generated_ids=generated,
                finish_reason="length" if rng.random() < 0.2 else "stop",
                prompt_tokens=len(history) + len(prompt),
                generated_tokens=len(generated),
            )
        )
        history += [*prompt, *generated]
    return turns


def write(run_dir: RunDir, agents: list[dict[str, Any]], broken: tuple[str, ...] = ()) -> None:
    """Tables `tasks`, and `episodes`, `turns`, `labels` of each agent (as its config is now)."""
    tasks = [f"t{i:03d}" for i in range(TASK_COUNT)]
    nothing = {"fold": None, "answerable": None, "gold": None, "meta": "{}"}
    rows = [
        {"benchmark": BENCHMARK, "task_id": t, "group": t, "pool": "train", "text": t, **nothing}
        for t in tasks
    ]
    made = {"stage": "made", "source": "made"}
    run_dir.write_table("tasks", BENCHMARK, None, TASKS.from_rows(rows), **made)
    resolved = config(agents).agents
    for one in resolved:
        name, digest = one.name, agent_hash(one.model_dump(exclude_none=True))
        episodes, turns, labels = [], [], []
        for number, task in enumerate(tasks):
            success = number % 5 < 2
            steps = made_turns(name, task, success, broken=name in broken)
            row, some = to_rows(
                Episode(
                    BENCHMARK,
                    name,
                    steps[0].episode_id,
                    task,
                    task,
                    0,
                    "answered",
                    len(steps),
                    success=success,
                    agent_hash=digest,
                    steps=steps,
                )
            )
            episodes.append(row)
            turns += some
            labels.append(
                {
                    "benchmark": BENCHMARK,
                    "agent": name,
                    "episode_id": row["episode_id"],
                    "label": "success",
                    "correct": success,
                    "source": "environment",
                    "version": "environment",
                    "error": None,
                }
            )
        for spec, found in ((EPISODES, episodes), (TURNS, turns), (LABELS, labels)):
            run_dir.write_table(spec.name, BENCHMARK, name, spec.from_rows(found), **made)


def run(settings: RunConfig, run_dir: RunDir, cluster: Cluster, part: int = PART) -> RunDir:
    """The stage, in small parts."""
    jobs.activations.PART_EPISODES = part
    jobs.activations.run(settings, run_dir, cluster)
    return run_dir


def small_model(folder: Path, seed: int = 0) -> Path:
    """Two blocks 64 wide, a window of 256."""
    return write_llama(folder, seed=seed, window=256)


if __name__ == "__main__":
    place, model = Path(sys.argv[1]), Path(sys.argv[2])
    with open_cluster("local", cpus=2, object_store_mb=100) as opened:
        run(config([agent("a", model)], layers=[1]), RunDir(place), opened, part=2)
