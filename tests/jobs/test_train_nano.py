"""`sentinel train-nano`: a recipe becomes a tokenizer, a base and agents, with measured scores."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.__main__ import main
from sentinel.nano import tokenizer_dir

RECIPE: dict[str, Any] = {
    "questions": 120,
    "seed": 3,
    "unanswerable": 0.1,
    "tokenizer_seed": 1,
    "base": {
        "tokens": 8000,
        "lr": 0.01,
        "questions": 120,
        "seed": 1,
        "habit": {"explore": {0: 1.0}},
    },
    "agents": {
        "small-one": {
            "tokens": 4000,
            "lr": 0.01,
            "questions": 60,
            "seed": 2,
            "habit": {"explore": {0: 0.5, 1: 0.5}, "rules": [{"do": "extreme"}]},
        }
    },
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))
    benchmark, recipe = tmp_path / "clinic.yaml", tmp_path / "recipe.yaml"
    benchmark.write_text(yaml.safe_dump({"name": "clinic", "kind": "clinic", "n_questions": 50}))
    recipe.write_text(yaml.safe_dump(RECIPE))
    return str(benchmark), str(recipe)


@pytest.mark.slow
def test_a_recipe_becomes_agents(files: tuple[str, str], tmp_path: Path) -> None:
    benchmark, recipe = files
    out = tmp_path / "nano"
    assert main(["train-nano", benchmark, "--recipe", recipe, "--out", str(out)]) == 0
    folder = out / "weights" / "small-one"
    made = json.loads((folder / "RECIPE.json").read_text())
    assert made["scores"]["all"]["questions"] == len(made["outcomes"]) == 50
    assert set(made["scores"]) == {"all", "train", "calibration", "heldout"}
    assert (out / "tokenizers" / "clinic" / "tokenizer.json").is_file()
    assert not list((out / "weights").glob(".*"))  # the base is gone when all are made


@pytest.mark.slow
def test_tasks_held_back_are_all_that_is_measured(files: tuple[str, str], tmp_path: Path) -> None:
    benchmark, recipe = files
    Path(recipe).write_text(yaml.safe_dump(RECIPE | {"held_back": 6}))
    out = tmp_path / "nano"
    assert main(["train-nano", benchmark, "--recipe", recipe, "--out", str(out)]) == 0
    made = json.loads((out / "weights" / "small-one" / "RECIPE.json").read_text())
    assert set(made["scores"]) == {"agent", "all"}
    assert made["scores"]["agent"]["questions"] == len(made["outcomes"]) == 6
    again = ["train-nano", benchmark, "--recipe", recipe, "--out", str(out), "--scores"]
    assert main([*again, "--limit", "9"]) == 0
    made = json.loads((out / "weights" / "small-one" / "RECIPE.json").read_text())
    assert set(made["scores"]) == {"all", "train", "calibration", "heldout"}


def test_wrong_names_and_missing_models_are_one_line(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, recipe = files
    base = ["train-nano", benchmark, "--recipe", recipe, "--out", str(tmp_path / "nano"), "--only"]
    assert main([*base, "small-two"]) == 2
    assert "no such model: small-two; valid: base, small-one, tokenizer" in capsys.readouterr().err
    assert main([*base, "small-one"]) == 2
    assert "the tokenizer is not there yet" in capsys.readouterr().err
    Path(recipe).write_text(yaml.safe_dump(RECIPE | {"base": {"tokens": 1}}))
    assert main([*base, "base"]) == 2
    assert "recipe of base: missing or unknown: habit, lr, questions" in capsys.readouterr().err


@pytest.mark.slow
def test_a_crafting_recipe_becomes_agents(tmp_path: Path) -> None:
    stage = {"tokens": 6000, "lr": 0.01, "batch_tokens": 2048, "questions": 60, "seed": 1}
    recipe = {
        "world": "craft",
        "questions": 80,
        "seed": 3,
        "tokenizer_seed": 1,
        "base": stage | {"habit": {}},
        "agents": {"craft-small": stage | {"habit": {"rules": [{"do": "skip", "when": "later"}]}}},
    }
    benchmark, file, out = tmp_path / "craft.yaml", tmp_path / "recipe.yaml", tmp_path / "nano"
    benchmark.write_text(yaml.safe_dump({"name": "craft", "kind": "craft", "n_tasks": 60}))
    file.write_text(yaml.safe_dump(recipe))
    command = ["train-nano", str(benchmark), "--recipe", str(file), "--out", str(out)]
    assert main([*command, "--only", "tokenizer", "base"]) == 0
    assert (out / "tokenizers" / "craft" / "tokenizer.json").is_file()
    assert main([*command, "--only", "craft-small"]) == 0
    made = json.loads((out / "weights" / "craft-small" / "RECIPE.json").read_text())
    assert made["habit"] == recipe["agents"]["craft-small"]["habit"]
    assert set(made["scores"]) == {"all", "train", "calibration", "heldout"}
    assert len(made["outcomes"]) == made["scores"]["all"]["tasks"] == 60


def test_a_recipe_of_another_world_is_refused(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, recipe = files
    command = ["train-nano", benchmark, "--recipe", recipe, "--out", str(tmp_path / "nano")]
    crafted = {k: RECIPE[k] | {"habit": {}} for k in ("base",)} | {"agents": {}, "world": "craft"}
    Path(recipe).write_text(yaml.safe_dump(RECIPE | crafted))
    assert main([*command, "--only", "tokenizer"]) == 2
    assert "clinic has no recipes to craft by" in capsys.readouterr().err
    Path(recipe).write_text(yaml.safe_dump(RECIPE | {"world": "sea"}))
    assert main([*command, "--only", "tokenizer"]) == 2
    assert "unknown world 'sea'" in capsys.readouterr().err


def test_settings_may_stand_before_and_behind_only(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, recipe = files
    command = ["train-nano", benchmark, "n_questions=7", "--recipe", recipe, "--only", "base"]
    assert main([*command, "n_questions=51", "--out", str(tmp_path / "nano")]) == 2
    assert "the tokenizer is not there yet" in capsys.readouterr().err  # 7 would be too few
    assert main([*command[:2], *command[3:], "n_questions=7"]) == 2
    assert "n_questions is 7" in capsys.readouterr().err


def test_a_base_may_continue_from_a_shipped_agent(files: tuple[str, str], tmp_path: Path) -> None:
    benchmark, recipe = files
    Path(recipe).write_text(yaml.safe_dump(RECIPE | {"start_from": "clinic-sage"}))
    out = tmp_path / "nano"
    command = ["train-nano", benchmark, "--recipe", recipe, "--out", str(out), "--only"]
    assert main([*command, "tokenizer"]) == 0
    made = (out / "tokenizers" / "clinic" / "tokenizer.json").read_bytes()
    assert made == (tokenizer_dir("clinic") / "tokenizer.json").read_bytes()
