"""What a user can mend, through the installed script: one line with a next step, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SCRIPT = Path(sys.executable).with_name("sentinel")
AGENT = {"name": "a", "engine": "transformers", "model": "./hollow"}
RAW = {"benchmarks": [{"name": "clinic", "n_questions": 60}], "agents": [AGENT], "on": "debug"}


def refused(folder: Path, *args: str, **env: str) -> str:
    """The one line of a refused command; nothing of a traceback, exit code 2."""
    cache = {"SENTINEL_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [SCRIPT, *args],
        cwd=folder,
        env={**os.environ, **cache, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("sentinel: ")
    assert "; " in done.stderr, "cause; next step"
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hollow").mkdir()
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(RAW))
    return tmp_path


@pytest.mark.parametrize("command", ["run", "collect", "doctor", "tasks"])
def test_an_unknown_key_is_named_and_nothing_begins(folder: Path, command: str) -> None:
    (folder / "r.yaml").write_text(yaml.safe_dump(RAW | {"colour": "red"}))
    before = sorted(folder.rglob("*"))
    assert "colour: unknown key" in refused(folder, command, "r.yaml")
    assert sorted(folder.rglob("*")) == before


def test_an_agent_folder_without_weights(folder: Path) -> None:
    line = refused(folder, "run", "r.yaml")
    assert f"agent folder {folder / 'hollow'} holds no weights" in line
    assert "sentinel train-nano" in line
    assert not (folder / "runs" / "r" / "tables" / "tasks").exists()


@pytest.mark.parametrize("command", ["run", "tasks"])
def test_a_data_folder_that_is_none(folder: Path, command: str) -> None:
    (folder / "file").touch()
    line = refused(folder, command, "r.yaml", SENTINEL_CACHE=str(folder / "file"))
    assert "benchmark clinic cannot be prepared" in line
    assert "SENTINEL_CACHE" in line


def test_a_benchmark_whose_data_are_missing(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import pathlib\n"
        "class Mine:\n"
        "    def __init__(self, name, data_dir): self.path = pathlib.Path(data_dir)\n"
        "    def prepare(self, cache): list(self.path.iterdir())\n"
        "    def close(self): pass\n"
    )
    raw = RAW | {"benchmarks": [{"name": "m", "kind": "mine:Mine", "data_dir": "./no data"}]}
    (folder / "r.yaml").write_text(yaml.safe_dump(raw))
    line = refused(folder, "run", "r.yaml", PYTHONPATH=str(folder))
    assert "benchmark m cannot be prepared" in line
    assert "no data" in line


@pytest.mark.parametrize("content", [b"subject_id,gender\n1,f\n" * 99, b"", None])
def test_a_database_that_is_none(folder: Path, content: bytes | None) -> None:
    path = folder / "x.sqlite"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in refused(folder, "sql", "x.sqlite", "select 1")
    assert content is None or path.read_bytes() == content


def test_places_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").touch()
    assert "no run directory" in refused(folder, "run", "r.yaml", "--run-dir", "file/x")
    line = refused(folder, "tasks", "r.yaml", "--out", "file/tasks.csv")
    assert "cannot write file/tasks.csv" in line
