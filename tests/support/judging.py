"""Made-up episodes, labelled, and a judge on a server of a test that knows what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api_server import Answer, said
from made_episodes import made_collection

from cluster.run_dir import RunDir
from jobs.config import RunConfig

BILL = (100 * 1000.0 + 1 * 10_000.0) / 1e6
"""Dollars of one reply of `verdict`."""


def config(url: str, agents: tuple[str, ...] = ("steady", "other"), **changes: Any) -> RunConfig:
    """The run of the made-up episodes, with a judge at `url` as the primary label."""
    judge = {
        "model": "m",
        "base_url": url,
        "price": {"prompt": 1000.0, "generated": 10_000.0},
        "concurrency": 4,
        "request_timeout": 20.0,
        **changes.pop("judge", {}),
    }
    raw = {
        "name": "mini",
        "on": "debug",
        "benchmarks": [{"name": "made", "kind": "made_episodes:MadeBenchmark"}],
        "agents": [{"name": n, "engine": "transformers", "model": f"nano:{n}"} for n in agents],
        "heads": {"kind": "tfidf", "validation": 0.2},
        "label": "judge",
        "judge": judge,
    }
    return RunConfig.from_mapping(raw | changes)


def labelled(root: Path, settings: RunConfig) -> RunDir:
    """A run directory with labelled episodes of every agent."""
    from jobs.stages import run_stages

    run_dir = RunDir(root)
    run_dir.prepare(settings.model_dump(mode="json"))
    made_collection(run_dir, [a.name for a in settings.agents])
    assert run_stages(settings, root, ("label",)) == 0
    return run_dir


def content(asked: dict[str, Any]) -> str:
    """What a request shows to the judge."""
    return str(asked["messages"][-1]["content"])


def digit(shown: str) -> str:
    """The verdict of this judge: by the number of the patient, so that both are there."""
    number = int(re.findall(r"patient (\d+)", shown)[0])
    return "1" if number % 3 == 0 else "0"


def verdict(_: int, asked: dict[str, Any]) -> Answer:
    """A calm server."""
    return Answer(said(digit(content(asked)), tokens=(100, 1)))


class Faults:
    """A server that is at fault so and so often about each content before it says the digit."""

    def __init__(self, choose: Callable[[str, int], Answer | None]) -> None:
        self.choose = choose
        self.seen: dict[str, int] = {}

    def __call__(self, number: int, asked: dict[str, Any]) -> Answer:
        shown = content(asked)
        times = self.seen.get(shown, 0)
        self.seen[shown] = times + 1
        return self.choose(shown, times) or verdict(number, asked)


def labels(run_dir: RunDir, label: str) -> dict[str, dict[str, Any]]:
    """episode_id → row of one label, all agents."""
    rows = run_dir.read("labels").to_pylist()
    return {row["episode_id"]: row for row in rows if row["label"] == label}


def judgements(run_dir: RunDir) -> list[dict[str, Any]]:
    """Rows of the table, as they lie."""
    found: list[dict[str, Any]] = run_dir.read("judgements").to_pylist()
    return found
