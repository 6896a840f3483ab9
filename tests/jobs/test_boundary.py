"""The boundary: where successes are few the gates abstain, nothing is saved and none is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_cascade
import pytest
import small_round_scores
from made_alfworld import write_game

from jobs import __main__ as cli

RUN = {
    "benchmarks": ["craft"],
    "agents": ["random"],
    "monitors": ["cascade"],
    "label": "success",
    "collect": {"workers": 1, "limit": 200},
    "cascade": {
        "scorers": ["surface", "task", "random"],
        "main": "surface",
        "deploy": "surface",
        "targets": [0.9, 0.95],
        "strict_targets": [0.9],
        "seeds": 4,
    },
    "bootstrap": {"resamples": 50},
}


def deployed(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Mean over splits of the searched cascade, per cell and target."""
    lines = [line for cell in document["cells"] for line in cell["seeds"]["summary"]]
    return [line for line in lines if line["allocation"] == "cascade"]


def test_the_same_scorer_saves_with_many_successes_and_abstains_with_few() -> None:
    saved = []
    for tasks in (600, 40):
        table = made_cascade.named(small_round_scores.table(5, tasks), "w/a", "probe")
        document, _ = made_cascade.make(table, ["0.9"], "paper", seeds=6)
        (line,) = deployed(document)
        saved.append(line["savings_mean"])
        assert line["recall_mean"] >= 0.85
    many, few = saved
    assert many > 0.05
    assert few <= 0.01


@pytest.mark.slow
def test_a_random_policy_is_left_alone(tmp_path: Path) -> None:
    left_alone(RUN, tmp_path, "craft")


@pytest.mark.slow
def test_a_random_policy_is_left_alone_in_alfworld(tmp_path: Path) -> None:
    """The boundary test's own environment: 40 small games, each in a process of its own."""
    pytest.importorskip("alfworld", reason="the extra alfworld is not installed")
    games = tmp_path / "games"
    for thing in ("mug", "book", "pan", "cup", "plate", "bowl", "vase", "fork", "spoon", "box"):
        for start, goal in (("table", "cabinet"), ("cabinet", "table"), ("fridge", "table"),
                            ("table", "fridge")):  # fmt: skip
            write_game(games / f"put-{thing}-{start}-{goal}" / "trial_0", thing, start, goal)
    world = {"name": "alfworld", "games_dir": str(games), "max_turns": 60}
    left_alone({**RUN, "benchmarks": [world], "collect": {"workers": 1}}, tmp_path, "alfworld")


def left_alone(run: dict[str, Any], tmp_path: Path, benchmark: str) -> None:
    """Run it; nothing is stopped, nothing is lost, and what is missing for a promise is named."""
    config = tmp_path / "boundary.yaml"
    config.write_text(json.dumps(run))
    root = tmp_path / "runs" / "boundary"
    assert cli.main(["run", str(config), "--run-dir", str(root), "--on", "debug"]) == 0
    folder = root / "cascade" / benchmark / "random"
    lines = deployed(json.loads((folder / "paper.json").read_text()))
    assert len(lines) == len(run["cascade"]["scorers"]) * len(run["cascade"]["targets"])
    for line in lines:
        assert line["no_op"] == line["seeds"]
        assert (line["recall_mean"], line["savings_mean"]) == (1.0, 0.0)
    strict = json.loads((folder / "strict.json").read_text())
    (target,) = strict["cells"][0]["targets"]
    assert target["aborts_nothing"] is True
    assert target["policy"]["thresholds"] == ["none"] * 6
    assert target["guarantee"]["guaranteed"] is False
    # what is missing is named: successes, not a better scorer
    assert target["guarantee"]["needs"] > target["guarantee"]["successes"] > 0
    assert target["others"]["no-op"]["kept"] == target["others"]["no-op"]["successes"]
